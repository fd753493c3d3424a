// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/draft.h"

#include <algorithm>
#include <utility>

#include "runtime/base/printable.h"

namespace pushpull_operator {
namespace {

constexpr std::chrono::seconds kSoon{2};
// Time for a node to end a pod after its grace period. After that, the node is gone or hangs, and
// the member is fenced by term and epoch.
constexpr std::chrono::seconds kStuckAfter{10};

// Whether the coordinator still counts `member` as one.
bool IsAlive(const CoordinatorReport& report, const MemberId& member) {
  if (member.role == pushpull::JobRole::kServer) return report.servers.contains(member.index);
  if (member.role == pushpull::JobRole::kCoordinator) return true;
  const auto worker = report.workers.find(member.index);
  return worker != report.workers.end() && worker->second.is_alive;
}

bool IsTrouble(absl::string_view type, bool is_true) {
  if (type == "Reconciled") return !is_true;
  return is_true && (type == "Failed" || type == "Degraded" || type == "ScalingBlocked" ||
                     type == "CheckpointFailed" || type == "Stalled");
}

// Other conditions are first set when they become true.
bool IsToldFromTheStart(absl::string_view type) {
  return type == "Ready" || type == "Reconciled" || type == "CheckpointFailed" ||
         type == "Suspended";
}

}  // namespace

Draft::Draft(const Observation& seen) : seen_(seen) {
  plan_.status = seen.object.status;
  for (const ObservedPod& pod : seen.pods) {
    // By its name: labels can be changed by anybody.
    const std::optional<MemberId> member = MemberOfPod(seen.meta.key.name, pod.meta.key.name);
    if (!member) continue;
    if (pod.meta.controller_uid == seen.meta.uid) {
      std::optional<MemberEnd> end = EndOf(pod, *member);
      const bool has_server_beside =
          member->role == pushpull::JobRole::kWorker && spec().workers.colocated_server;
      if (!end && has_server_beside) end = EndOfColocatedServer(pod, *member);
      pods_[*member] = {.seen = &pod, .end = std::move(end)};
    } else {
      taken_.insert(*member);
    }
  }
}

// Every coordinator except a job's first begins by collecting the state of the running members.
// After a suspension, or if no coordinator was created under an earlier term, there are none.
bool Draft::HasRunningMembers() const {
  return std::any_of(pods_.begin(), pods_.end(), [](const auto& entry) {
    return entry.first.role != pushpull::JobRole::kCoordinator && !entry.second.end;
  });
}

const CoordinatorReport* Draft::report() const {
  if (!seen_.coordinator) return nullptr;
  const bool is_recovering = seen_.coordinator->phase == pushpull::JobPhase::kRecovering;
  return is_recovering && HasRunningMembers() ? nullptr : &*seen_.coordinator;
}

const MemberPod* Draft::Find(const MemberId& member) const {
  const auto found = pods_.find(member);
  return found == pods_.end() ? nullptr : &found->second;
}

int Draft::DesiredNow(pushpull::JobRole role) const {
  if (role == pushpull::JobRole::kCoordinator) return 1;
  const CoordinatorReport* said = report();
  if (said == nullptr) return 0;
  return role == pushpull::JobRole::kServer ? said->desired_servers : said->desired_workers;
}

void Draft::SetPhase(Phase phase) {
  if (plan_.status.phase == phase) return;
  plan_.status.phase = phase;
  plan_.status.phase_time = now();
}

void Draft::Set(absl::string_view type,
                bool is_true,
                const std::string& reason,
                std::string message,
                Telling telling) {
  // The API server's messages may quote a whole value of the spec; the schema of the status has a
  // limit, and a patch that exceeds it would fail every time.
  message = pushpull::Printable(message);
  TrainingJobStatus& status = plan_.status;
  const Condition* old = FindCondition(status.conditions, type);
  if (old == nullptr && !is_true && !IsToldFromTheStart(type)) return;
  const bool was_true = old != nullptr && old->status == kConditionTrue;
  // An initial state is not an event.
  const bool is_news = old == nullptr
                           ? IsTrouble(type, is_true) || (is_true && type != "Reconciled")
                           : was_true != is_true;
  if (is_news && IsTold(telling)) {
    AddEvent(IsTrouble(type, is_true) ? Event::Kind::kWarning : Event::Kind::kNormal,
             reason,
             std::string(type),
             message);
  }
  SetCondition(status.conditions,
               {.type = std::string(type),
                .status = is_true ? kConditionTrue : kConditionFalse,
                .observed_generation = seen_.meta.generation,
                .last_transition = now(),
                .reason = reason,
                .message = std::move(message)});
}

bool Draft::IsTold(Telling telling) const {
  const bool has_restart = std::ranges::count(plan_.events, kRestartAction, &Event::action) > 0;
  return telling == Telling::kEvent || (telling == Telling::kConsequence && !has_restart);
}

void Draft::AddEvent(Event::Kind kind, std::string reason, std::string action, std::string note) {
  plan_.events.push_back({.kind = kind,
                          .reason = std::move(reason),
                          .action = std::move(action),
                          .note = std::move(note)});
}

void Draft::Fail(const std::string& reason, const std::string& message) {
  if (IsFinished()) return;
  SetPhase(Phase::kFailed);
  plan_.status.completion_time = now();
  Set("Failed", true, reason, message);
}

// Since when it is clear that the pod will not end by itself. A node without a sign of life ends
// nothing, and a fenced member has nothing to hand over. But the taint may be a different one, on a
// node that is alive: then its pods get their time.
WallTime Draft::StuckSince(const MemberPod& pod) const {
  const bool is_lost = pod.end && pod.end->exit.reason == pushpull::ExitReason::kNodeLost;
  const std::optional<MemberId> member = MemberOfPod(seen_.meta.key.name, pod.seen->meta.key.name);
  const bool is_coordinator = member && member->role == pushpull::JobRole::kCoordinator;
  const bool is_fenced = report() != nullptr ? member && !IsAlive(*report(), *member)
                                             : is_coordinator && !seen_.coordinator;
  return is_lost && is_fenced ? now() : *pod.seen->pod.deletion_time + kStuckAfter;
}

void Draft::Delete(const MemberPod& pod, DeletePod::Grace grace) {
  const ObjectMeta& meta = pod.seen->meta;
  if (!deleted_.insert(meta.uid).second) return;
  if (!meta.is_deleting)
    return Do(DeletePod{.name = meta.key.name, .uid = meta.uid, .grace = grace});
  if (!pod.seen->pod.deletion_time) return;
  const WallTime stuck_at = StuckSince(pod);
  if (now() < stuck_at) return RequeueAt(stuck_at);
  Do(DeletePod{.name = meta.key.name, .uid = meta.uid, .grace = DeletePod::Grace::kNone});
}

void Draft::RequeueSoon() {
  RequeueAt(now() + kSoon);
}

}  // namespace pushpull_operator
