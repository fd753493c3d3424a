// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"

#include "operator/plan/parts.h"
#include "runtime/job/enum_names.h"

namespace pushpull_operator {

using pushpull::CleanupPolicy;
using pushpull::JobRole;

namespace {

// For the checkpoint at the job's end; as long as with `pushpull run`.
constexpr std::chrono::minutes kSaveGrace{5};
// If spec.startDeadlineSeconds is not set. Images with GPU libraries have 10 to 20 GiB, and pulling
// one can take 15 minutes.
constexpr std::chrono::minutes kStartDeadline{30};

std::optional<StartProblem> FirstStartProblem(const Draft& draft) {
  for (const auto& [member, pod] : draft.pods()) {
    if (std::optional<StartProblem> problem = StartProblemOf(*pod.seen)) return problem;
  }
  return std::nullopt;
}

void CheckActiveDeadline(Draft& draft) {
  const TrainingJobStatus& status = draft.status();
  if (!draft.spec().active_deadline || !status.start_time) return;
  const WallTime end = *status.start_time + *draft.spec().active_deadline +
                       std::chrono::seconds(status.suspended_seconds);
  if (draft.now() < end) return draft.RequeueAt(end);
  draft.Fail(
      "DeadlineExceeded",
      absl::StrCat(
          "ran for spec.activeDeadlineSeconds (", draft.spec().active_deadline->count(), " s)"));
}

// The default deadline only limits what happens on nodes. Nothing: the job waits for something
// else, such as capacity, a quota or a Secret, for as long as it takes.
std::optional<WallTime> AllScheduledSince(Draft& draft) {
  const TrainingJobStatus& status = draft.status();
  const Condition* reconciled = FindCondition(status.conditions, "Reconciled");
  const bool is_refused = reconciled != nullptr && reconciled->status == kConditionFalse;
  if (is_refused || draft.pods().empty()) return std::nullopt;
  WallTime since = *status.phase_time;
  for (const auto& [member, pod] : draft.pods()) {
    const Pod& seen = pod.seen->pod;
    if (seen.node.empty()) return std::nullopt;
    since = std::max(since, seen.scheduled_since.value_or(since));
  }
  return since;
}

void CheckStartDeadline(Draft& draft) {
  const TrainingJobStatus& status = draft.status();
  const bool is_starting =
      status.phase == Phase::kStarting && status.phase_time && !status.restarts.next_at;
  if (!is_starting) return;
  const std::optional<std::chrono::seconds>& own = draft.spec().start_deadline;
  const std::optional<WallTime> since = own ? status.phase_time : AllScheduledSince(draft);
  if (!since) return;
  const std::chrono::seconds limit = own.value_or(kStartDeadline);
  const WallTime end = *since + limit;
  if (draft.now() < end) return draft.RequeueAt(end);
  const std::optional<StartProblem> problem = FirstStartProblem(draft);
  std::string awaited = AwaitedMembers(draft, std::chrono::seconds(0));
  if (!awaited.empty()) awaited = "; not registered: " + awaited;
  draft.Fail(problem ? problem->reason : "StartDeadlineExceeded",
             absl::StrCat("not all members were ready within spec.startDeadlineSeconds (",
                          limit.count(),
                          own ? " s)" : " s unless set, from when the last pod was given a node)",
                          problem ? "; " + problem->message : awaited));
}

bool AreAllWorkersOver(const Draft& draft) {
  const int wanted = draft.report() != nullptr ? draft.DesiredNow(JobRole::kWorker)
                                               : draft.spec().workers.replicas;
  for (int i = 0; i < wanted; ++i) {
    if (!draft.finished_members().contains({.role = JobRole::kWorker, .index = i})) return false;
  }
  return wanted > 0;
}

// When the last worker's container ended, of those whose pods still exist.
std::optional<WallTime> DoneSince(const Draft& draft) {
  std::optional<WallTime> done;
  for (const auto& [member, pod] : draft.pods()) {
    if (member.role != JobRole::kWorker) continue;
    for (const ContainerStatus& container : pod.seen->pod.containers) {
      if (!container.end || !container.end->finished) continue;
      done = std::max(done.value_or(WallTime{}), *container.end->finished);
    }
  }
  return done;
}

// The coordinator requests the last save once it knows that no worker takes part any more.
bool KnowsOfTheEnd(const CoordinatorReport& report) {
  return std::none_of(report.workers.begin(), report.workers.end(), [](const auto& worker) {
    return worker.second.is_alive && !worker.second.has_left && !worker.second.was_released;
  });
}

bool IsSaved(Draft& draft) {
  if (!draft.spec().checkpoint) return true;
  const CoordinatorReport* report = draft.report();
  const bool is_known = report != nullptr && (!DecisiveWorker(draft) || KnowsOfTheEnd(*report));
  if (is_known && report->saves_finished >= report->saves_requested) return true;
  const std::optional<WallTime> done = DoneSince(draft);
  if (!done || draft.now() >= *done + kSaveGrace) return true;
  draft.RequeueAt(*done + kSaveGrace);
  draft.RequeueSoon();
  return false;
}

// The pod's phase says so only once its resources are released, some time after its containers end.
bool HasEnded(const Pod& pod) {
  if (pod.phase == PodPhase::kSucceeded || pod.phase == PodPhase::kFailed) return true;
  return !pod.containers.empty() &&
         std::all_of(pod.containers.begin(), pod.containers.end(), [](const ContainerStatus& it) {
           return it.end.has_value();
         });
}

// The job has succeeded without them: each finishes its step and leaves. True: none runs any more.
bool EndWorkers(Draft& draft) {
  bool is_over = true;
  for (const auto& [member, pod] : draft.pods()) {
    if (member.role != JobRole::kWorker || pod.end || HasEnded(pod.seen->pod)) continue;
    draft.Delete(pod);
    is_over = false;
  }
  return is_over;
}

bool ShouldDelete(CleanupPolicy cleanup, const MemberPod& pod) {
  switch (cleanup) {
    case CleanupPolicy::kAll:
      return true;
    case CleanupPolicy::kNone:
      return false;
    case CleanupPolicy::kRunning:
      break;
  }
  return pod.is_deleting() || !HasEnded(pod.seen->pod);
}

}  // namespace

void CheckDeadlines(Draft& draft) {
  CheckActiveDeadline(draft);
  if (!draft.IsFinished()) CheckStartDeadline(draft);
}

void CheckSuccess(Draft& draft) {
  const std::optional<MemberId> decisive = DecisiveWorker(draft);
  const bool is_over = decisive ? EndWorkers(draft) : AreAllWorkersOver(draft);
  if (!is_over || !IsSaved(draft)) return;
  draft.SetPhase(Phase::kSucceeded);
  draft.status().completion_time = draft.now();
  const CoordinatorReport* report = draft.report();
  const bool is_unsaved = report != nullptr && !report->checkpoint_problem.empty();
  draft.Set("Complete",
            true,
            decisive ? "SuccessPolicy" : "AllWorkersDone",
            absl::StrCat(decisive ? draft.NameOf(*decisive) : "every worker",
                         " has done its part",
                         decisive ? ", which is enough by spec.restart.successPolicy " : "",
                         decisive ? pushpull::NameOf(draft.spec().restart.success_policy) : "",
                         is_unsaved ? "; its result is not saved: " : "",
                         is_unsaved ? report->checkpoint_problem : ""));
}

bool HasRunningPods(const Draft& draft) {
  return std::any_of(draft.pods().begin(), draft.pods().end(), [](const auto& entry) {
    return !HasEnded(entry.second.seen->pod);
  });
}

void PlanFinished(Draft& draft) {
  for (const auto& [member, pod] : draft.pods()) {
    if (ShouldDelete(draft.spec().cleanup, pod)) draft.Delete(pod);
  }
  if (!draft.spec().ttl_after_finished || !draft.status().completion_time) return;
  const WallTime end = *draft.status().completion_time + *draft.spec().ttl_after_finished;
  if (draft.now() < end) return draft.RequeueAt(end);
  draft.Do(DeleteJob{.uid = draft.seen().meta.uid});
}

}  // namespace pushpull_operator
