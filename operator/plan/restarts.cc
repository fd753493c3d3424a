// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/plan/parts.h"

namespace pushpull_operator {

using pushpull::ExitAction;
using pushpull::ExitDecision;
using pushpull::JobRole;

namespace {

const MemberRestart* RecordOf(const TrainingJobStatus& status, absl::string_view pod) {
  const std::vector<MemberRestart>& members = status.restarts.members;
  const auto found = std::ranges::find(members, pod, &MemberRestart::pod);
  return found == members.end() ? nullptr : &*found;
}

void Keep(MemberRestart record, std::vector<MemberRestart>& members) {
  const auto position = std::ranges::lower_bound(members, record.pod, {}, &MemberRestart::pod);
  if (position != members.end() && position->pod == record.pod) {
    *position = std::move(record);
  } else {
    members.insert(position, std::move(record));
  }
}

bool WasCounted(Draft& draft, const MemberPod& pod) {
  const MemberRestart* record = RecordOf(draft.status(), pod.seen->meta.key.name);
  return record != nullptr && record->uid == pod.seen->meta.uid;
}

// It ended in order because it was released, and is desired again: it restarts, uncounted.
bool WasReleased(const Draft& draft, const MemberId& member, const MemberEnd& end) {
  const CoordinatorReport* report = draft.report();
  if (report == nullptr || end.code != 0) return false;
  if (member.role == JobRole::kServer) return !report->servers.contains(member.index);
  const auto worker = report->workers.find(member.index);
  return worker != report->workers.end() && worker->second.was_released && !worker->second.is_alive;
}

void Count(Draft& draft,
           const MemberPod& pod,
           const ExitDecision& decision,
           const std::string& text) {
  RestartsStatus& restarts = draft.status().restarts;
  const MemberEnd& end = *pod.end;
  const std::string& name = pod.seen->meta.key.name;
  restarts.counted = decision.history.counted;
  if (end.is_disruption()) ++restarts.disruptions;
  restarts.last =
      LastRestart{.pod = name, .reason = end.reason, .exit_code = end.code, .time = draft.now()};
  Keep({.pod = name,
        .uid = pod.seen->meta.uid,
        .in_a_row = decision.history.in_a_row,
        .next_at = draft.now() + decision.delay},
       restarts.members);
  draft.AddEvent(end.is_disruption() ? Event::Kind::kNormal : Event::Kind::kWarning,
                 end.reason,
                 kRestartAction,
                 text);
}

void DecideAndApply(Draft& draft, const MemberId& member, const MemberPod& pod) {
  const MemberEnd& end = *pod.end;
  const std::string& name = pod.seen->meta.key.name;
  const MemberRestart* record = RecordOf(draft.status(), name);
  const ExitDecision decision = pushpull::DecideAfterExit(
      draft.spec().restart,
      end.exit,
      {.counted = static_cast<int>(draft.status().restarts.counted),
       .in_a_row = record == nullptr ? 0 : static_cast<int>(record->in_a_row)});
  const std::string text =
      absl::StrCat(name, " ", decision.text, end.detail.empty() ? "" : ": ", end.detail);
  switch (decision.action) {
    case ExitAction::kDone:
    case ExitAction::kIgnore:
      draft.AddFinishedMember(member);
      return;
    case ExitAction::kRestartPod:
      Count(draft, pod, decision, text);
      return draft.Delete(pod);
    case ExitAction::kRestartJob:
      Count(draft, pod, decision, text);
      draft.status().restarts.next_at = draft.now() + decision.delay;
      return draft.SetPhase(Phase::kStarting);
    case ExitAction::kFailJob:
      draft.status().restarts.last = LastRestart{
          .pod = name, .reason = end.reason, .exit_code = end.code, .time = draft.now()};
      return draft.Fail(decision.is_limit_reached ? "BackoffLimitExceeded" : "MemberFailed", text);
  }
}

bool HasTrained(const Draft& draft) {
  return draft.report() != nullptr && draft.report()->phase == pushpull::JobPhase::kSucceeded;
}

void HandleEnd(Draft& draft, const MemberId& member, const MemberPod& pod) {
  const bool is_ours_alone = member.role == JobRole::kCoordinator || pod.end->is_disruption();
  if (WasCounted(draft, pod)) return draft.Delete(pod);
  if (draft.report() == nullptr && !is_ours_alone) return draft.RequeueSoon();
  // The servers have nothing left to do, and end.
  if (HasTrained(draft) && member.role != JobRole::kWorker) return;
  // A member that is no longer desired is removed by members.h.
  if (draft.report() != nullptr && member.index >= draft.DesiredNow(member.role)) return;
  if (WasReleased(draft, member, *pod.end)) return draft.Delete(pod);
  DecideAndApply(draft, member, pod);
}

// The coordinator remembers workers that are done, also when their pods are gone.
void AddDepartedWorkers(Draft& draft) {
  if (draft.report() == nullptr) return;
  for (const auto& [index, worker] : draft.report()->workers) {
    const MemberId member{.role = JobRole::kWorker, .index = index};
    if (worker.has_left && !worker.is_alive && draft.Find(member) == nullptr)
      draft.AddFinishedMember(member);
  }
}

// A member that has been healthy for long enough starts with the initial delay again.
bool IsForgotten(Draft& draft, const MemberRestart& record) {
  const std::optional<MemberId> member = MemberOfPod(draft.seen().meta.key.name, record.pod);
  if (!member) return true;
  const MemberPod* pod = draft.Find(*member);
  if (pod == nullptr) {
    return draft.report() != nullptr && member->index >= draft.DesiredNow(member->role);
  }
  const std::optional<WallTime> running = RunningSince(*pod->seen, *member);
  if (pod->end || !running || pod->seen->meta.uid == record.uid) return false;
  const WallTime healthy = *running + draft.spec().restart.healthy_after;
  if (draft.now() >= healthy) return true;
  draft.RequeueAt(healthy);
  return false;
}

}  // namespace

void PlanRestarts(Draft& draft) {
  AddDepartedWorkers(draft);
  for (const auto& [member, pod] : draft.pods()) {
    if (!pod.end) continue;
    HandleEnd(draft, member, pod);
    if (draft.IsFinished()) return;
  }
  std::erase_if(draft.status().restarts.members,
                [&draft](const MemberRestart& record) { return IsForgotten(draft, record); });
}

std::optional<WallTime> RestartDue(const TrainingJobStatus& status, const std::string& pod) {
  const MemberRestart* record = RecordOf(status, pod);
  return record == nullptr ? std::nullopt : record->next_at;
}

}  // namespace pushpull_operator
