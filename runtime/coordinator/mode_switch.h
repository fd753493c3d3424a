// SPDX-License-Identifier: Apache-2.0
//
// How a running job changes its mode (docs/protocol.md section 7,
// docs/decisions/0012-modes-change-between-steps.md). All workers stop before the same step (in
// Async, each before its own), so that nothing is in flight; then a view makes all of them begin
// the new mode at the same step.
//
//   idle --1--> requested --2--> asking --3--> draining --4--> agreeing --5--> idle
//                                |             |
//                                +------6------+--> idle
//
// 1 Another mode is requested.
// 2 No other view is being agreed on: members are told to begin no further step.
// 3 All have answered which step that is: each completes the steps below its target.
// 4 All have done so: the view that changes the mode is proposed (view_agreement.h).
// 5 It is in force.
// 6 A member has not completed its steps in time: all continue in the old mode.
//
// A member that leaves or dies meanwhile is not waited for. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/consistency/view.h"
#include "runtime/membership/control.h"

namespace pushpull {

// The job's settings that restrict its modes.
struct ModeRules {
  bool is_deterministic = false;
  bool measures_noise = false;
  bool sums_locally = false;     // spec.sync.localReduce
  bool divides_samples = false;  // workers share a data set (Job::UseSamples)
  uint32_t workers = 0;          // desired
};

// The mode, staleness, number of backup workers and gate that `change` requests. kInvalidArgument:
// it contradicts itself or the manifest; the text names the field.
absl::StatusOr<Consistency> WantedMode(const Consistency& active,
                                       const ModeChange& change,
                                       const ModeRules& rules);

// Thread-compatible.
class ModeSwitch {
 public:
  explicit ModeSwitch(Duration patience) : patience_(patience) {}

  bool is_under_way() const { return phase_ != Phase::kIdle; }
  // The requested mode, staleness, number of backup workers and gate.
  const Consistency& wanted() const { return wanted_; }
  // Why the last change was given up; empty if it was not.
  const std::string& problem() const { return problem_; }

  // is_under_way() must be false. Of `wanted` only these four fields count.
  void Begin(SteadyTime now, const Consistency& wanted);
  void OnHeld(WorkerId worker, const StepsHeld& held);

  // What to do now.
  struct Orders {
    std::vector<std::pair<WorkerId, HoldSteps>> holds = {};
    std::vector<std::pair<WorkerId, ResumeSteps>> resumes = {};
    // Nothing is in flight: propose the view. The mode begins at this step or a later one.
    std::optional<Step> first_step = {};
  };
  // To be called after every event. `active` is the view in force; `may_begin`: no other is
  // proposed.
  Orders Advance(SteadyTime now, const View& active, bool may_begin);

 private:
  enum class Phase { kIdle, kWanted, kAsking, kDraining, kAgreeing };
  struct Member {
    std::optional<Step> next_step;
    bool is_drained = false;
  };

  void Ask(const View& active, Orders& orders);
  void Drain(Orders& orders);
  void GiveUp(Orders& orders);
  std::string Missing() const;

  const Duration patience_;
  Phase phase_ = Phase::kIdle;
  uint64_t round_ = 0;
  Consistency before_;
  Consistency wanted_;
  SteadyTime deadline_;
  std::map<WorkerId, Member> members_;
  Step first_step_;
  std::string problem_;
};

}  // namespace pushpull
