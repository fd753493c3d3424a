// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/plan/parts.h"
#include "runtime/base/colocated_server.h"

namespace pushpull_operator {

using pushpull::ExitAction;
using pushpull::ExitDecision;
using pushpull::JobRole;

namespace {

// The kubelet reports the end of a container within seconds, if its node is there.
constexpr std::chrono::seconds kEndIsTold{10};

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

// Why the job goes on without the worker of this pod, as decided earlier; empty: it does not.
std::string WhyLeftOut(Draft& draft, const MemberPod& pod) {
  return WasCounted(draft, pod) ? RecordOf(draft.status(), pod.seen->meta.key.name)->left_out : "";
}

// Whether it exited normally because it was released, but is desired again: it restarts, uncounted.
// The coordinator that released a worker may be gone, and the next one does not know of it.
bool WasReleased(const Draft& draft, const MemberId& member, const MemberEnd& end) {
  if (end.was_released) return true;
  const CoordinatorReport* report = draft.report();
  if (report == nullptr || end.code != 0) return false;
  if (member.role == JobRole::kServer) return !report->servers.contains(member.index);
  const auto worker = report->workers.find(member.index);
  return worker != report->workers.end() && worker->second.was_released && !worker->second.is_alive;
}

pushpull::RestartHistory HistoryOf(const RestartsStatus& restarts, const MemberRestart* member) {
  return {.counted = member == nullptr ? 0 : static_cast<int>(member->counted),
          .job_counted = static_cast<int>(restarts.job_counted),
          .in_a_row = member == nullptr ? 0 : static_cast<int>(member->in_a_row),
          .last_end = member == nullptr ? "" : member->last_end,
          .alike = member == nullptr ? 0 : static_cast<int>(member->alike)};
}

void RememberLast(Draft& draft, const MemberPod& pod, const std::string& text) {
  draft.status().restarts.last = LastRestart{.pod = pod.seen->meta.key.name,
                                             .reason = pod.end->reason,
                                             .exit_code = pod.end->code,
                                             .time = draft.now(),
                                             .message = text};
}

void Count(Draft& draft,
           const MemberPod& pod,
           const ExitDecision& decision,
           const std::string& text) {
  RestartsStatus& restarts = draft.status().restarts;
  const MemberEnd& end = *pod.end;
  const std::string& name = pod.seen->meta.key.name;
  const pushpull::RestartHistory before = HistoryOf(restarts, RecordOf(draft.status(), name));
  restarts.counted += decision.history.counted - before.counted;
  restarts.counted += decision.history.job_counted - before.job_counted;
  restarts.job_counted = decision.history.job_counted;
  if (end.is_disruption()) ++restarts.disruptions;
  RememberLast(draft, pod, text);
  Keep({.pod = name,
        .uid = pod.seen->meta.uid,
        .counted = decision.history.counted,
        .in_a_row = decision.history.in_a_row,
        .next_at = draft.now() + decision.delay,
        .last_end = decision.history.last_end,
        .alike = decision.history.alike},
       restarts.members);
  draft.AddEvent(end.is_disruption() ? Event::Kind::kNormal : Event::Kind::kWarning,
                 end.reason,
                 kRestartAction,
                 text);
}

bool IsTrainingWithout(const Draft& draft, const MemberId& member) {
  const CoordinatorReport* report = draft.report();
  if (report == nullptr || report->phase != pushpull::JobPhase::kRunning) return false;
  return std::ranges::any_of(report->workers, [&member](const auto& worker) {
    const bool is_itself = member.role == JobRole::kWorker && worker.first == member.index;
    return worker.second.is_alive && !is_itself;
  });
}

// Whether it was never ready or, if it is a worker, has made no step, and the job trains without
// it: it is new, or replaces another.
bool IsPendingMember(const Draft& draft, const MemberId& member, const MemberPod& pod) {
  if (member.role == JobRole::kCoordinator || !IsTrainingWithout(draft, member)) return false;
  const auto& workers = draft.report()->workers;
  const auto worker = workers.find(member.index);
  const WorkerReport* known = worker == workers.end() ? nullptr : &worker->second;
  if (!WasReady(*pod.seen, member, known, draft.now())) return true;
  return member.role == JobRole::kWorker && draft.report()->has_stepped && !known->has_stepped;
}

std::vector<std::string> EndsOfOtherWorkers(const TrainingJobStatus& status,
                                            const std::string& pod) {
  std::vector<std::string> ends;
  for (const MemberRestart& record : status.restarts.members) {
    if (record.pod != pod) ends.push_back(record.last_end);  // empty for other roles
  }
  return ends;
}

// Recorded, because later the same end could mean something else: when the others are done, nobody
// trains without this worker. `what`: how it ended.
void LeaveOut(Draft& draft,
              const MemberId& worker,
              const MemberPod& pod,
              const ExitDecision& decision,
              const std::string& what) {
  const std::string& name = pod.seen->meta.key.name;
  draft.AddFinishedMember(worker, what);
  draft.AddEvent(Event::Kind::kWarning, pod.end->reason, "LeaveOut", absl::StrCat(name, " ", what));
  Keep({.pod = name,
        .uid = pod.seen->meta.uid,
        .counted = decision.history.counted,
        .in_a_row = decision.history.in_a_row,
        .last_end = decision.history.last_end,
        .alike = decision.history.alike,
        .left_out = what},
       draft.status().restarts.members);
}

// What a user forgot, if that is why there is no such program.
std::string HintOf(const Draft& draft, const MemberId& member, const MemberEnd& end) {
  const bool is_ours = member.role == JobRole::kWorker && draft.spec().image.empty();
  if (end.exit.has_started || !is_ours) return "";
  return "; spec.image is not set, and the operator's own image has no programs of users";
}

void RestartJob(Draft& draft,
                const MemberPod& pod,
                const ExitDecision& decision,
                const std::string& text) {
  Count(draft, pod, decision, text);
  ForgetEnds(draft.status());
  draft.status().restarts.next_at = draft.now() + decision.delay;
  draft.SetPhase(Phase::kStarting);
}

void DecideAndApply(Draft& draft, const MemberId& member, const MemberPod& pod) {
  const MemberEnd& end = *pod.end;
  const std::string& name = pod.seen->meta.key.name;
  pushpull::MemberExit exit = end.exit;
  exit.is_pending = IsPendingMember(draft, member, pod);
  exit.precedes_training = draft.report() != nullptr && !draft.report()->has_stepped;
  const ExitDecision decision =
      pushpull::DecideAfterExit(draft.spec().restart,
                                exit,
                                HistoryOf(draft.status().restarts, RecordOf(draft.status(), name)),
                                EndsOfOtherWorkers(draft.status(), name));
  const std::string what = absl::StrCat(
      decision.text, end.detail.empty() ? "" : ": ", end.detail, HintOf(draft, member, end));
  const std::string text = absl::StrCat(name, " ", what);
  switch (decision.action) {
    case ExitAction::kSucceedJob:
    case ExitAction::kDone:
      return draft.AddFinishedMember(member);
    case ExitAction::kIgnore:
      if (member.role == JobRole::kWorker) return LeaveOut(draft, member, pod, decision, what);
      return draft.AddFinishedMember(member);
    case ExitAction::kRestartPod:
      Count(draft, pod, decision, text);
      return draft.Delete(pod);
    case ExitAction::kRestartJob:
      return RestartJob(draft, pod, decision, text);
    case ExitAction::kFailJob:
      RememberLast(draft, pod, text);
      return draft.Fail(decision.is_limit_reached ? "BackoffLimitExceeded" : "MemberFailed", text);
  }
}

// The member in whose pod the server runs.
MemberId HostOf(int server) {
  const auto beside = pushpull::WorkerBeside(pushpull::ServerId{static_cast<uint32_t>(server)});
  if (!beside) return {.role = JobRole::kServer, .index = server};
  return {.role = JobRole::kWorker, .index = static_cast<int>(beside->value())};
}

bool HasTrained(const Draft& draft) {
  return draft.report() != nullptr && draft.report()->phase == pushpull::JobPhase::kSucceeded;
}

void HandleEnd(Draft& draft, const MemberId& member, const MemberPod& pod) {
  const bool is_ours_alone = member.role == JobRole::kCoordinator || pod.end->is_disruption();
  const std::string left_out = WhyLeftOut(draft, pod);
  if (left_out.empty() && WasCounted(draft, pod)) return draft.Delete(pod);
  if (draft.report() == nullptr && !is_ours_alone) return draft.RequeueSoon();
  // The servers have nothing left to do, and exit.
  if (HasTrained(draft) && member.role != JobRole::kWorker) return;
  // A member that is no longer desired is removed by members.cc.
  if (draft.report() != nullptr && member.index >= draft.DesiredNow(member.role)) return;
  if (WasReleased(draft, member, *pod.end)) return draft.Delete(pod);
  if (!left_out.empty()) return draft.AddFinishedMember(member, left_out);
  DecideAndApply(draft, member, pod);
}

// The coordinator remembers workers that are done, even when their pods are gone.
void AddDepartedWorkers(Draft& draft) {
  if (draft.report() == nullptr) return;
  for (const auto& [index, worker] : draft.report()->workers) {
    const MemberId member{.role = JobRole::kWorker, .index = index};
    if (worker.has_left && !worker.is_alive && draft.Find(member) == nullptr)
      draft.AddFinishedMember(member);
  }
}

// When the member will have been healthy for long enough; none: it is not running.
std::optional<WallTime> HealthyAt(const Draft& draft,
                                  const MemberId& member,
                                  const MemberRestart& record) {
  const MemberPod* pod = draft.Find(member);
  if (pod == nullptr || pod->end || pod->seen->meta.uid == record.uid) return std::nullopt;
  const std::optional<WallTime> running = RunningSince(*pod->seen, member);
  return running ? std::optional(*running + draft.spec().restart.healthy_after) : std::nullopt;
}

// A member that has been healthy for long enough gets the initial delay again; its number of
// restarts stays.
void Update(Draft& draft, const MemberId& member, MemberRestart& record) {
  const MemberPod* pod = draft.Find(member);
  if (pod == nullptr || pod->seen->meta.uid != record.uid) record.left_out.clear();
  if (record.in_a_row == 0) return;
  const std::optional<WallTime> healthy = HealthyAt(draft, member, record);
  if (!healthy) return;
  if (draft.now() < *healthy) return draft.RequeueAt(*healthy);
  record.in_a_row = 0;
  record.next_at.reset();
}

bool IsForgotten(const Draft& draft, const MemberId& member, const MemberRestart& record) {
  if (!record.left_out.empty()) return false;
  if (record.counted == 0 && record.in_a_row == 0) return true;
  const bool is_desired = draft.report() == nullptr || member.index < draft.DesiredNow(member.role);
  return draft.Find(member) == nullptr && !is_desired;
}

void UpdateRecords(Draft& draft) {
  const std::string& job = draft.seen().meta.key.name;
  std::vector<MemberRestart>& records = draft.status().restarts.members;
  for (MemberRestart& record : records) {
    if (const std::optional<MemberId> member = MemberOfPod(job, record.pod))
      Update(draft, *member, record);
  }
  std::erase_if(records, [&](const MemberRestart& record) {
    const std::optional<MemberId> member = MemberOfPod(job, record.pod);
    return !member || IsForgotten(draft, *member, record);
  });
}

}  // namespace

std::optional<MemberId> DecisiveWorker(const Draft& draft) {
  const pushpull::RestartSpec& restart = draft.spec().restart;
  const int desired = draft.DesiredNow(JobRole::kWorker);
  for (const auto& [member, pod] : draft.pods()) {
    const bool may_be = member.role == JobRole::kWorker && member.index < desired && pod.end &&
                        !WasReleased(draft, member, *pod.end);
    if (may_be &&
        pushpull::DecideAfterExit(restart, pod.end->exit, {}).action == ExitAction::kSucceedJob)
      return member;
  }
  for (const auto& [departed, why_left_out] : draft.finished_members()) {
    if (draft.Find(departed) == nullptr && departed.index < desired &&
        pushpull::SucceedsWith(restart.success_policy, departed.index))
      return departed;
  }
  return std::nullopt;
}

bool PlanLostServer(Draft& draft) {
  const CoordinatorReport& report = *draft.report();
  if (!report.lost_server) return false;
  const MemberId member = HostOf(*report.lost_server);
  const MemberPod* pod = draft.Find(member);
  const bool may_be_told = pod != nullptr && !pod->end && !pod->is_deleting();
  if (may_be_told && report.failed_ago < kEndIsTold) {
    draft.RequeueSoon();
    return true;
  }
  ObservedPod gone;
  gone.meta.key.name = draft.NameOf(member);
  MemberPod lost = pod == nullptr ? MemberPod{.seen = &gone} : *pod;
  if (!lost.end) {
    lost.end = MemberEnd{.exit = {.role = member.role, .index = member.index, .exit_code = 1},
                         .reason = "Error",
                         .code = std::nullopt,
                         .detail = ""};
  }
  pushpull::MemberExit exit = lost.end->exit;
  exit.restarts_job = exit.restarts_job || report.can_resume;
  const std::string& name = lost.seen->meta.key.name;
  const ExitDecision decision =
      pushpull::DecideAfterExit(draft.spec().restart,
                                exit,
                                HistoryOf(draft.status().restarts, RecordOf(draft.status(), name)),
                                EndsOfOtherWorkers(draft.status(), name));
  const std::string text = absl::StrCat(report.failure, "; ", name, " ", decision.text);
  if (decision.is_limit_reached) draft.Fail("BackoffLimitExceeded", text);
  if (decision.action != ExitAction::kRestartJob) return decision.is_limit_reached;
  RestartJob(draft, lost, decision, text);
  return true;
}

void ForgetEnds(TrainingJobStatus& status) {
  for (MemberRestart& record : status.restarts.members) {
    record.last_end.clear();
    record.alike = 0;
  }
}

void PlanRestarts(Draft& draft) {
  AddDepartedWorkers(draft);
  const bool is_decided = DecisiveWorker(draft).has_value();
  for (const auto& [member, pod] : draft.pods()) {
    if (!pod.end) continue;
    // How the other workers end no longer matters, only whether they are done.
    const bool is_over = is_decided && member.role == JobRole::kWorker;
    if (is_over && pod.end->code != 0) continue;
    HandleEnd(draft, member, pod);
    if (draft.IsFinished()) return;
  }
  UpdateRecords(draft);
}

std::optional<WallTime> RestartDue(const TrainingJobStatus& status, const std::string& pod) {
  const MemberRestart* record = RecordOf(status, pod);
  return record == nullptr ? std::nullopt : record->next_at;
}

}  // namespace pushpull_operator
