// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

#include "operator/plan/parts.h"

namespace pushpull_operator {
namespace {

// Between two attempts to save a job that is to be suspended.
constexpr std::chrono::seconds kSaveAgain{30};

bool IsStopping(const Draft& draft) {
  return std::any_of(draft.pods().begin(), draft.pods().end(), [](const auto& entry) {
    return entry.second.is_deleting();
  });
}

void DeleteAll(Draft& draft, DeletePod::Grace grace) {
  for (const auto& [member, pod] : draft.pods()) draft.Delete(pod, grace);
}

bool IsTraining(Draft& draft) {
  const std::optional<Phase> phase = draft.status().phase;
  return phase == Phase::kRunning || phase == Phase::kScaling;
}

// Whether the coordinator knows of the requested save. A later coordinator starts new numbers.
bool IsAskedFor(const Draft& draft) {
  const std::optional<uint64_t>& save = draft.seen().save;
  return save && draft.report() != nullptr && draft.report()->saves_requested >= *save;
}

bool IsSaveDone(const Draft& draft) {
  return IsAskedFor(draft) && draft.report()->saves_succeeded >= *draft.seen().save;
}

// A save that failed is requested again, as long as the suspension is held.
void AskForSave(Draft& draft) {
  const bool is_asked_for = IsAskedFor(draft);
  if (is_asked_for && draft.report()->saves_finished < *draft.seen().save) return;
  const WallTime again = draft.seen().save_time + kSaveAgain;
  if (is_asked_for && draft.now() < again) return draft.RequeueAt(again);
  draft.Do(RequestSave{});
}

// The decision to delete the pods is in the status before the first of them is deleted.
bool HasBegunToStop(const Draft& draft) {
  const Condition* suspended = FindCondition(draft.seen().object.status.conditions, "Suspended");
  return IsStopping(draft) || (suspended != nullptr && suspended->reason == "Stopping");
}

struct Hold {
  std::string reason;
  std::string message;
};

// Why the job continues for now although it is to be suspended; nothing: it need not.
std::optional<Hold> HoldOf(Draft& draft) {
  const bool has_values = draft.spec().checkpoint && IsTraining(draft) && !HasBegunToStop(draft);
  if (!draft.spec().suspend || !has_values || IsSaveDone(draft)) return std::nullopt;
  const pushpull::ScalingSpec& scaling = draft.spec().scaling;
  if (scaling.on_drain_timeout == pushpull::DrainTimeoutPolicy::kForce) {
    const WallTime give_up = *draft.status().suspend_time + scaling.drain_timeout;
    if (draft.now() >= give_up) return std::nullopt;
    draft.RequeueAt(give_up);
  }
  const CoordinatorReport* report = draft.report();
  if (report == nullptr) return Hold{"CoordinatorSilent", "the coordinator does not answer"};
  if (report->phase == pushpull::JobPhase::kRecovering)
    return Hold{"CoordinatorStarting", "a new coordinator is collecting its members"};
  if (report->phase != pushpull::JobPhase::kRunning) return std::nullopt;  // nothing to save
  AskForSave(draft);
  if (!report->checkpoint_problem.empty()) return Hold{"SaveFailed", report->checkpoint_problem};
  return Hold{"Saving", "a checkpoint is being saved"};
}

// Says what is lost with the pods before they are deleted. If all members restart anyway, their
// event has said it.
void WarnOfLoss(Draft& draft) {
  const bool is_restarting = draft.status().restarts.next_at.has_value();
  if (!IsTraining(draft) || is_restarting || HasBegunToStop(draft)) return;
  std::string text;
  if (!draft.spec().checkpoint) {
    text = "the job has no spec.checkpoint: its steps are lost, it starts anew when it is resumed";
  } else if (draft.report() == nullptr ||
             (draft.report()->phase == pushpull::JobPhase::kRunning && !IsSaveDone(draft))) {
    const std::optional<SavedCheckpoint>& saved = draft.status().checkpoint;
    text = absl::StrCat("no checkpoint was saved within spec.scaling.drainTimeoutSeconds (",
                        draft.spec().scaling.drain_timeout.count(),
                        "), and onDrainTimeout is Force: the steps after step ",
                        saved ? saved->step : 0,
                        " are lost");
  }
  if (!text.empty()) draft.AddEvent(Event::Kind::kWarning, "StepsLost", "Suspend", text);
}

void Suspend(Draft& draft) {
  if (!draft.pods().empty()) {
    WarnOfLoss(draft);
    draft.Set("Suspended", false, "Stopping", "the pods are being deleted");
    return DeleteAll(draft, DeletePod::Grace::kPods);
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
  ForgetEnds(status);
  draft.Set("Suspended", false, "Resumed", "spec.suspend is false");
  // Resumed while it was being stopped: the remaining members would wait for the deleted ones.
  if (IsStopping(draft)) status.restarts.next_at = draft.now();
}

void HoldSuspension(Draft& draft) {
  const std::optional<Hold> hold = HoldOf(draft);
  draft.holds_suspension() = hold.has_value();
  if (!hold) return;
  draft.RequeueSoon();
  draft.Set("Suspended",
            false,
            hold->reason,
            absl::StrCat("spec.suspend is true, and the job goes on until it is saved: ",
                         hold->message,
                         "; spec.scaling.onDrainTimeout: Force ends the wait after "
                         "drainTimeoutSeconds"));
}

bool IsPaused(Draft& draft) {
  const bool is_suspended = draft.spec().suspend && !draft.holds_suspension();
  return is_suspended || draft.status().restarts.next_at.has_value();
}

bool PlanPause(Draft& draft) {
  if (!IsPaused(draft)) return false;
  if (draft.spec().suspend) {
    Suspend(draft);
    return true;
  }
  std::optional<WallTime>& next_at = draft.status().restarts.next_at;
  if (!draft.pods().empty()) {
    DeleteAll(draft, DeletePod::Grace::kRestart);
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
