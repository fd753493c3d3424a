// SPDX-License-Identifier: Apache-2.0
//
// Which phase the job is in, when it started and ended, and why it failed:
//
//   starting --Start--> running --Succeed--> succeeded
//       |                  |
//       +------------------+--Fail--> failing --AddDetail, final failure or grace over--> failed
//
// A loss fails the job at once, but the status shows it as failed only a moment later: until then
// workers report which tensor and step the loss interrupted. Pure.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"

#include "pushpull/deadline.h"

#include "runtime/membership/job_status.h"

namespace pushpull {

// Why the job fails.
struct JobFailure {
  std::string text;
  uint32_t exit_code = 0;  // of `pushpull run`; 0: the usual one
  // No worker can say which tensor and step the failure interrupted, so none is waited for.
  bool is_final = true;
  // It was lost with the only copy of its shards: what follows is up to spec.restart.
  std::optional<ServerId> lost_server = {};
  bool can_resume = false;  // the job has a checkpoint to begin again from
};

// Thread-compatible.
class JobLifecycle {
 public:
  // `failure_grace`: how long workers may take to report details.
  JobLifecycle(std::string job, Duration failure_grace)
      : job_(std::move(job)), failure_grace_(failure_grace) {}

  bool has_started() const { return started_at_.has_value(); }
  bool is_running() const { return phase_ == JobPhase::kRunning && !has_failed(); }
  bool has_succeeded() const { return phase_ == JobPhase::kSucceeded; }
  // True from the failure on, even while details may still arrive.
  bool has_failed() const { return failed_at_.has_value(); }
  bool is_over() const { return has_succeeded() || has_failed(); }
  // With details; empty if the job has not failed.
  const std::string& failure() const { return failure_.text; }
  // kFailedPrecondition: the job has not started, or is over.
  absl::Status CheckRunning() const;

  void Start(SteadyTime now);
  void Succeed(SteadyTime now);
  // Does nothing if the job has already failed: the first failure causes the others.
  void Fail(SteadyTime now, JobFailure failure);
  // False if no detail is expected.
  bool AddDetail(const std::string& text);
  void OnTick(SteadyTime now);

  void AddTo(JobStatus& status, SteadyTime now) const;

 private:
  const std::string job_;
  const Duration failure_grace_;
  JobPhase phase_ = JobPhase::kStarting;
  JobFailure failure_;
  std::optional<SteadyTime> started_at_;
  std::optional<SteadyTime> failed_at_;
  std::optional<SteadyTime> ended_at_;
};

}  // namespace pushpull
