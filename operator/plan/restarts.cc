// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/restarts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull_operator {

using pushpull::ExitAction;
using pushpull::ExitDecision;
using pushpull::JobRole;

namespace {

const MemberRestart* RecordOf(const TrainingJobStatus& status, absl::string_view pod) {
  const std::vector<MemberRestart>& members = status.restarts.members;
  const auto found = std::find_if(
      members.begin(), members.end(), [&](const MemberRestart& m) { return m.pod == pod; });
  return found == members.end() ? nullptr : &*found;
}

void Keep(MemberRestart record, std::vector<MemberRestart>& members) {
  const auto place = std::lower_bound(
      members.begin(), members.end(), record.pod, [](const MemberRestart& m, const std::string& p) {
        return m.pod < p;
      });
  if (place != members.end() && place->pod == record.pod) {
    *place = std::move(record);
  } else {
    members.insert(place, std::move(record));
  }
}

bool WasCounted(Draft& draft, const MemberPod& pod) {
  const MemberRestart* record = RecordOf(draft.status(), pod.seen->meta.key.name);
  return record != nullptr && record->uid == pod.seen->meta.uid;
}

// That it ended in order because it was not wanted, and is again: it starts anew and nobody failed.
bool WasReleased(const Draft& draft, const MemberId& member, const MemberEnd& end) {
  const CoordinatorWord* word = draft.word();
  if (word == nullptr || end.code != 0) return false;
  if (member.role == JobRole::kServer) return !word->servers.contains(member.index);
  const auto worker = word->workers.find(member.index);
  return worker != word->workers.end() && worker->second.was_released && !worker->second.is_alive;
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
  draft.Tell(end.is_disruption() ? Event::Kind::kNormal : Event::Kind::kWarning,
             end.reason,
             kRestartAction,
             text);
}

void Judge(Draft& draft, const MemberId& member, const MemberPod& pod) {
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
      draft.over.insert(member);
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
  return draft.word() != nullptr && draft.word()->phase == CoordinatorWord::Phase::kSucceeded;
}

void JudgeUnlessKnown(Draft& draft, const MemberId& member, const MemberPod& pod) {
  const bool is_ours_alone = member.role == JobRole::kCoordinator || pod.end->is_disruption();
  if (WasCounted(draft, pod)) return draft.Delete(pod);
  if (draft.word() == nullptr && !is_ours_alone) return draft.LookAgainSoon();
  // The servers have nothing left to do, and end.
  if (HasTrained(draft) && member.role != JobRole::kWorker) return;
  // What is not wanted any more goes without a judgement (members.h).
  if (draft.word() != nullptr && member.index >= draft.WantedNow(member.role)) return;
  if (WasReleased(draft, member, *pod.end)) return draft.Delete(pod);
  Judge(draft, member, pod);
}

// The coordinator remembers who was done, also when the pod is gone.
void NoteWhoHasLeft(Draft& draft) {
  if (draft.word() == nullptr) return;
  for (const auto& [index, worker] : draft.word()->workers) {
    const MemberId member{.role = JobRole::kWorker, .index = index};
    if (worker.has_left && !worker.is_alive && draft.Find(member) == nullptr)
      draft.over.insert(member);
  }
}

// A member that has been well for long enough begins with short delays again.
bool IsForgotten(Draft& draft, const MemberRestart& record) {
  const std::optional<MemberId> member = MemberOfPod(draft.seen().meta.key.name, record.pod);
  if (!member) return true;
  const MemberPod* pod = draft.Find(*member);
  if (pod == nullptr) {
    return draft.word() != nullptr && member->index >= draft.WantedNow(member->role);
  }
  const std::optional<WallTime> running = RunningSince(*pod->seen, *member);
  if (pod->end || !running || pod->seen->meta.uid == record.uid) return false;
  const WallTime healthy = *running + pushpull::kHealthyAfter;
  if (draft.now() >= healthy) return true;
  draft.LookAgain(healthy);
  return false;
}

}  // namespace

void PlanRestarts(Draft& draft) {
  NoteWhoHasLeft(draft);
  for (const auto& [member, pod] : draft.pods()) {
    if (!pod.end) continue;
    JudgeUnlessKnown(draft, member, pod);
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
