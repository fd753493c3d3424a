// SPDX-License-Identifier: Apache-2.0
//
// A plan in the making: the job's own pods by member, the status as it will be, and the few ways to
// add to them that every part of the plan uses.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/string_view.h"

#include "operator/plan/job_plan.h"
#include "operator/plan/member_end.h"
#include "operator/plan/observation.h"

namespace pushpull_operator {

struct MemberPod {
  const ObservedPod* seen = nullptr;
  std::optional<MemberEnd> end;
  bool is_deleting() const { return seen->meta.is_deleting; }
};

// Thread-compatible.
class Draft {
 public:
  // Reads `seen`, which must outlive the draft.
  explicit Draft(const Observation& seen);

  const Observation& seen() const { return seen_; }
  const pushpull::TrainingJobSpec& spec() const { return seen_.object.job.spec; }
  WallTime now() const { return seen_.now; }
  // Null while the coordinator gives no answer, or no complete one.
  const CoordinatorWord* word() const;

  // The pods of this job, and of no earlier one of its name.
  const std::map<MemberId, MemberPod>& pods() const { return pods_; }
  const MemberPod* Find(const MemberId& member) const;
  // Whether a pod of the member's name is another owner's.
  bool IsTaken(const MemberId& member) const { return taken_.contains(member); }
  std::string NameOf(const MemberId& member) const;
  // So many servers, or workers, shall be there now: as the coordinator knows it, which is told of
  // changes; before it has answered nobody is missed.
  int WantedNow(pushpull::JobRole role) const;

  TrainingJobStatus& status() { return plan_.status; }
  bool IsFinished() const;
  void SetPhase(Phase phase);

  // Sets a condition; one that was never there is not set to false. Where its status changes, an
  // event tells so.
  void Set(absl::string_view type, bool is_true, const std::string& reason, std::string message);
  void Tell(Event::Kind kind, std::string reason, std::string action, std::string note);
  // The job has failed, for this reason.
  void Fail(const std::string& reason, const std::string& message);

  void Do(Action action) { plan_.actions.push_back(std::move(action)); }
  // Unless it is going already; one that should be gone by now is taken out of the API server.
  // Once, however often it is asked for.
  void Delete(const MemberPod& pod);
  void DropActions();
  void LookAgain(WallTime when);
  // As soon as it makes sense to ask the coordinator again.
  void LookAgainSoon();

  JobPlan Take() { return std::move(plan_); }

  // Members whose part is over: workers that are done, members that the rules say to ignore.
  std::set<MemberId> over;

 private:
  WallTime StuckSince(const MemberPod& pod) const;
  bool HasMembersToHear() const;

  const Observation& seen_;
  JobPlan plan_;
  std::map<MemberId, MemberPod> pods_;
  std::set<MemberId> taken_;
  std::set<std::string> deleted_;  // uids
};

}  // namespace pushpull_operator
