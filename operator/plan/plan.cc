// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/plan.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "operator/plan/parts.h"

namespace pushpull_operator {
namespace {

// How spec.managedBy names this operator.
constexpr char kController[] = "pushpull.dev/operator";
constexpr size_t kProblemsShown = 5;

// An invalid spec is not acted upon: existing pods stay until it is corrected.
void PlanInvalid(Draft& draft) {
  std::vector<std::string> lines;
  for (const pushpull::ManifestProblem& problem : draft.seen().object.problems) {
    if (lines.size() < kProblemsShown) lines.push_back(pushpull::ToString(problem));
  }
  if (!draft.status().phase) draft.SetPhase(Phase::kPending);
  draft.Set("Reconciled", false, "InvalidSpec", absl::StrJoin(lines, "; "));
  DescribePods(draft);
}

// Not acted upon either: what the job had before it became unreadable stays as it is.
void PlanUnreadable(Draft& draft) {
  TrainingJobStatus& status = draft.status();
  if (!status.phase) draft.SetPhase(Phase::kPending);
  status.observed_generation = draft.seen().meta.generation;
  draft.Set("Reconciled",
            false,
            "Unreadable",
            absl::StrCat(draft.seen().object.unreadable,
                         "; nothing is done for the job until it is shortened, its pods stay"));
}

void Begin(Draft& draft) {
  TrainingJobStatus& status = draft.status();
  const bool has_changed = status.observed_generation != draft.seen().meta.generation;
  // The spec has changed, and maybe the desired size: a drain gets its full timeout again.
  if (has_changed && status.phase == Phase::kScaling) status.phase_time = draft.now();
  CountSuspension(draft);
  if (draft.spec().suspend) return;
  if (!status.start_time) status.start_time = draft.now();
  const bool has_no_pods =
      !status.phase || status.phase == Phase::kPending || status.phase == Phase::kSuspended;
  if (!has_no_pods) return;
  draft.SetPhase(Phase::kStarting);
  draft.AddEvent(Event::Kind::kNormal,
                 "Starting",
                 "Start",
                 absl::StrCat("the coordinator starts, then servers (",
                              draft.spec().servers.replicas,
                              "), then workers (",
                              draft.spec().workers.replicas,
                              ")"));
}

// Returns early if the job has ended, or has no members for now.
void PlanRun(Draft& draft) {
  Begin(draft);
  if (!draft.spec().suspend) CheckDeadlines(draft);
  if (draft.IsFinished()) return;
  HoldSuspension(draft);
  if (PlanPause(draft)) return;
  if (!draft.seen().refusal.empty()) return draft.Fail("InvalidSpec", draft.seen().refusal);
  if (draft.report() != nullptr && draft.report()->phase == pushpull::JobPhase::kFailed) {
    if (PlanLostServer(draft)) {
      if (!draft.IsFinished()) PlanPause(draft);
      return;
    }
    const std::string& failure = draft.report()->failure;
    return draft.Fail("TrainingFailed",
                      failure.empty() ? "the coordinator gives no reason; see its log" : failure);
  }
  PlanRestarts(draft);
  if (draft.IsFinished() || PlanPause(draft)) return;
  CheckSuccess(draft);
  if (!draft.IsFinished()) PlanMembers(draft);
}

void PlanManaged(Draft& draft) {
  const Observation& seen = draft.seen();
  if (!seen.object.unreadable.empty()) {
    if (!draft.IsFinished()) PlanUnreadable(draft);
    return;
  }
  if (!draft.IsFinished()) {
    if (NeedsRuntime(seen)) return PlanRuntime(draft);
    if (seen.object.runtime.empty()) draft.status().runtime.reset();
    if (!seen.object.problems.empty()) return PlanInvalid(draft);
    PlanRun(draft);
  }
  DescribePods(draft);
  if (draft.IsFinished()) {
    draft.DropActions();
    PlanFinished(draft);
    DescribeStopped(draft, "Finished", "the job has ended");
  } else if (IsPaused(draft)) {
    const bool is_suspended = seen.object.job.spec.suspend;
    draft.Set("Reconciled", true, "Reconciled", kReconciled);
    DescribeStopped(draft,
                    is_suspended ? "Suspended" : "Restarting",
                    is_suspended ? "spec.suspend is true" : "all members start again");
  } else {
    DescribeRunning(draft);
  }
}

}  // namespace

bool IsManaged(const Observation& seen) {
  const std::string& managed_by = seen.object.job.spec.managed_by;
  return !seen.meta.is_deleting && (managed_by.empty() || managed_by == kController);
}

bool IsActive(const Observation& seen) {
  const bool is_valid = seen.object.unreadable.empty() && seen.object.problems.empty();
  return IsManaged(seen) && is_valid && !NeedsRuntime(seen) && !Draft(seen).IsFinished();
}

bool NeedsNoKeys(const Observation& seen) {
  const Draft draft(seen);
  return IsManaged(seen) && draft.IsFinished() && !HasRunningPods(draft);
}

JobPlan Plan(const Observation& seen) {
  Draft draft(seen);
  if (!IsManaged(seen)) return draft.Take();
  PlanManaged(draft);
  Summarize(draft);
  return draft.Take();
}

}  // namespace pushpull_operator
