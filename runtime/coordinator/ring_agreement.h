// SPDX-License-Identifier: Apache-2.0
//
// How the coordinator forms the ring of a job in mode AllReduce (docs/protocol.md section 12). A
// ring is the list of workers that sum gradients among themselves under one epoch. Any change ends
// the ring, and the next one begins with the step that was under way:
//
//   idle --1--> stopping --2--> forming --3--> running
//                  ^ |             |              |
//                  +-4             +------1-------+
//
// 1 A worker joins, leaves or dies, turns out to be in another rack, or reports that the ring has
//   failed: the epoch rises, and every worker is told to stop.
// 2 Every worker has stopped and reported which values it has. The highest mark wins: a worker that
//   has it sends its values to those that do not.
// 3 Every worker has the values and continues.
// 4 As 1, before all have stopped.
//
// No worker loses a step: a worker keeps its gradient until it has the values that result from the
// step, and workers that already have them are at most one step ahead. A leaving worker stays until
// another one also has the newest values. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/coordinator/saved_state.h"
#include "runtime/coordinator/worker_agreement.h"

namespace pushpull {

// Thread-compatible.
class RingAgreement final : public WorkerAgreement {
 public:
  // Consecutive rings that may fail without a step in between before the job fails.
  static constexpr int kFailuresMax = 10;

  // `secret` is random: ring tokens are derived from it. `consistency`: of the views. `saved`: with
  // what a ring begins if no worker has any values; used, not owned, and outlives this object.
  RingAgreement(Term term, uint64_t secret, const Consistency& consistency, const SavedState& saved)
      : secret_(secret), saved_(saved), epoch_{.term = term} {
    active_.consistency = consistency;
  }

  ViewChange Join(const std::map<WorkerId, Incarnation>& joiners) override;
  // The worker remains a member until a view without it is in force.
  ViewChange Leave(WorkerId worker, Step end_step, bool is_released) override;
  ViewChange Remove(WorkerId worker) override;
  const View& active() const override { return active_; }
  // True even before a view has it; false if a view has only its earlier process.
  bool IsMember(WorkerId worker) const override { return members_.contains(worker); }

  // The members' racks have changed, so they sum in other groups. Does nothing if there is no ring.
  ViewChange Regroup();

  // Messages about earlier epochs are ignored.
  ViewChange OnStopped(WorkerId worker, const RingStopped& message);
  ViewChange OnNews(WorkerId worker, const RingNews& message);

  bool is_running() const { return phase_ == Phase::kRunning; }

 private:
  enum class Phase { kIdle, kStopping, kForming, kRunning };
  struct Member {
    Incarnation incarnation;
    std::optional<Step> end_step = {};  // it leaves
    bool is_released = false;
    std::optional<RingStopped> stopped = {};  // for this epoch
    bool is_formed = false;                   // likewise
  };

  void Renew();
  void ConcludeIfStopped();
  void DropLeavers(const std::optional<RingMark>& highest);
  void Form(const std::optional<RingMark>& highest);
  void Activate(Step first_step);
  std::optional<RingMark> HighestMark() const;

  const uint64_t secret_;
  const SavedState& saved_;
  Epoch epoch_;
  Phase phase_ = Phase::kIdle;
  std::map<WorkerId, Member> members_;  // joiners included
  View active_;
  bool has_begun_ = false;  // a ring was formed
  RingMark last_mark_;      // with which a ring was formed
  int failures_ = 0;        // since then
  ViewChange change_;       // by the call under way
};

}  // namespace pushpull
