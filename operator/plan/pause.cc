// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "operator/plan/parts.h"

namespace pushpull_operator {
namespace {

bool IsStopping(const Draft& draft) {
  return std::any_of(draft.pods().begin(), draft.pods().end(), [](const auto& entry) {
    return entry.second.is_deleting();
  });
}

void DeleteAll(Draft& draft) {
  for (const auto& [member, pod] : draft.pods()) draft.Delete(pod);
}

// Whether the checkpoint before a suspension is still being written.
bool IsSaving(Draft& draft) {
  const TrainingJobStatus& status = draft.status();
  const bool has_trained = status.phase == Phase::kRunning || status.phase == Phase::kScaling;
  if (!draft.spec().checkpoint || !has_trained || IsStopping(draft)) return false;
  const WallTime give_up = *status.suspend_time + draft.spec().scaling.drain_timeout;
  if (draft.now() >= give_up) return false;
  draft.RequeueAt(give_up);
  const CoordinatorReport* report = draft.report();
  if (report == nullptr) return true;  // it may come back
  if (report->phase != pushpull::JobPhase::kRunning) return false;
  if (!draft.seen().save) {
    draft.Do(RequestSave{});
    return true;
  }
  return report->saves_finished < *draft.seen().save;
}

void Suspend(Draft& draft) {
  if (!draft.pods().empty()) {
    if (IsSaving(draft)) return draft.RequeueSoon();
    return DeleteAll(draft);
  }
  // Only now: the CRD's rules let the whole spec change in this phase.
  draft.SetPhase(Phase::kSuspended);
  draft.status().restarts.next_at.reset();
  draft.Set("Suspended", true, "Suspended", "spec.suspend is true and no pod is left");
}

}  // namespace

void CountSuspension(Draft& draft) {
  TrainingJobStatus& status = draft.status();
  if (draft.spec().suspend) {
    if (!status.suspend_time) status.suspend_time = draft.now();
    return;
  }
  if (!status.suspend_time) return;
  // Time before the first start does not count as suspended.
  if (status.start_time)
    status.suspended_seconds += std::max<int64_t>((draft.now() - *status.suspend_time).count(), 0);
  status.suspend_time.reset();
  draft.Set("Suspended", false, "Resumed", "spec.suspend is false");
  // Resumed while it was being stopped: the remaining members would wait for the deleted ones.
  if (IsStopping(draft)) status.restarts.next_at = draft.now();
}

bool PlanPause(Draft& draft) {
  if (draft.spec().suspend) {
    Suspend(draft);
    return true;
  }
  std::optional<WallTime>& next_at = draft.status().restarts.next_at;
  if (!next_at) return false;
  if (!draft.pods().empty()) {
    DeleteAll(draft);
    return true;
  }
  if (draft.now() < *next_at) {
    draft.RequeueAt(*next_at);
    return true;
  }
  next_at.reset();
  draft.SetPhase(Phase::kStarting);
  draft.status().phase_time = draft.now();
  return false;
}

}  // namespace pushpull_operator
