// SPDX-License-Identifier: Apache-2.0
//
// A plan under construction: the job's own pods by member, the status to write, and the operations
// that every part of the plan uses to add to them.
#pragma once

#include <algorithm>
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

// Whether a change of a condition is an event. kConsequence: not if this plan has counted the end
// of a member, of which it is a consequence.
enum class Telling { kEvent, kConsequence, kQuiet };

// Thread-compatible.
class Draft {
 public:
  // Reads `seen`, which must outlive the draft.
  explicit Draft(const Observation& seen);

  const Observation& seen() const { return seen_; }
  const pushpull::TrainingJobSpec& spec() const { return seen_.object.job.spec; }
  WallTime now() const { return seen_.now; }
  // Null without a complete report from the coordinator.
  const CoordinatorReport* report() const;

  // The pods of this job, not of an earlier one with its name.
  const std::map<MemberId, MemberPod>& pods() const { return pods_; }
  const MemberPod* Find(const MemberId& member) const;
  // Whether a pod with the member's name belongs to another owner.
  bool IsTaken(const MemberId& member) const { return taken_.contains(member); }
  std::string NameOf(const MemberId& member) const { return PodName(seen_.meta.key.name, member); }
  // The number of servers, or workers, that the coordinator has agreed to; 0 before its first
  // report, so that no member is missing then.
  int DesiredNow(pushpull::JobRole role) const;

  TrainingJobStatus& status() { return plan_.status; }
  bool IsFinished() const {
    return plan_.status.phase == Phase::kSucceeded || plan_.status.phase == Phase::kFailed;
  }
  void SetPhase(Phase phase);

  // Sets a condition; most conditions that were never true are not set to false. A change of status
  // is an event, unless `telling` says otherwise. `message` is never empty.
  void Set(absl::string_view type,
           bool is_true,
           const std::string& reason,
           std::string message,
           Telling telling = Telling::kEvent);
  void AddEvent(Event::Kind kind, std::string reason, std::string action, std::string note);
  // The job has failed, for this reason.
  void Fail(const std::string& reason, const std::string& message);

  void Do(Action action) { plan_.actions.push_back(std::move(action)); }
  // Deletes a pod once, however often it is called. A pod that is still there after its grace
  // period is deleted by force.
  void Delete(const MemberPod& pod, DeletePod::Grace grace = DeletePod::Grace::kPods);
  void DropActions() {
    plan_.actions.clear();
    deleted_.clear();
  }
  void RequeueAt(WallTime when) {
    plan_.requeue_at = std::min(plan_.requeue_at.value_or(when), when);
  }
  // As soon as another report from the coordinator may have news.
  void RequeueSoon();

  // Whether the job is to be suspended but continues until a checkpoint is saved.
  bool& holds_suspension() { return holds_suspension_; }

  JobPlan Take() { return std::move(plan_); }

  // Workers that are done, and members that the restart rules ignore.
  // By member: why the job goes on without it; empty: it is done.
  const std::map<MemberId, std::string>& finished_members() const { return finished_members_; }
  void AddFinishedMember(const MemberId& member, const std::string& why_left_out = "") {
    finished_members_[member] = why_left_out;
  }

 private:
  bool IsTold(Telling telling) const;
  WallTime StuckSince(const MemberPod& pod) const;
  bool HasRunningMembers() const;

  const Observation& seen_;
  JobPlan plan_;
  std::map<MemberId, MemberPod> pods_;
  std::set<MemberId> taken_;
  std::set<std::string> deleted_;  // uids
  std::map<MemberId, std::string> finished_members_;
  bool holds_suspension_ = false;
};

}  // namespace pushpull_operator
