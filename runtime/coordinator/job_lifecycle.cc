// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/job_lifecycle.h"

#include "absl/strings/str_cat.h"

namespace pushpull {

absl::Status JobLifecycle::CheckRunning() const {
  if (is_over()) return absl::FailedPreconditionError(absl::StrCat("job ", job_, " is over"));
  if (has_started()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job ", job_, " has not started yet: wait for its first step"));
}

void JobLifecycle::Start(SteadyTime now) {
  started_at_ = now;
  phase_ = JobPhase::kRunning;
}

void JobLifecycle::Succeed(SteadyTime now) {
  ended_at_ = now;
  phase_ = JobPhase::kSucceeded;
}

void JobLifecycle::Fail(SteadyTime now, JobFailure failure) {
  if (has_failed()) return;
  failure_ = std::move(failure);
  failed_at_ = now;
  ended_at_ = now;
  if (failure_.is_final) phase_ = JobPhase::kFailed;
}

bool JobLifecycle::AddDetail(const std::string& text) {
  if (!has_failed() || phase_ == JobPhase::kFailed) return false;
  absl::StrAppend(&failure_.text, "; ", text);
  phase_ = JobPhase::kFailed;
  return true;
}

void JobLifecycle::OnTick(SteadyTime now) {
  if (failed_at_ && now - *failed_at_ >= failure_grace_) phase_ = JobPhase::kFailed;
}

void JobLifecycle::AddTo(JobStatus& status, SteadyTime now) const {
  status.job = job_;
  status.phase = phase_;
  status.failure = failure_.text;
  status.failure_exit_code = failure_.exit_code;
  status.lost_server = failure_.lost_server;
  status.can_resume = failure_.can_resume;
  if (failed_at_) status.failed_seconds = ToSeconds(now - *failed_at_);
  if (started_at_) status.seconds = ToSeconds(ended_at_.value_or(now) - *started_at_);
}

}  // namespace pushpull
