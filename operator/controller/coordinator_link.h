// SPDX-License-Identifier: Apache-2.0
//
// Calls to the coordinator of one job: finds it, presents the job's certificates, and leaves one
// that does not answer alone for a while.
#pragma once

#include <chrono>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "operator/controller/job_coordinator.h"
#include "operator/controller/job_state.h"
#include "operator/controller/observed_job.h"
#include "operator/plan/job_plan.h"
#include "runtime/base/time_source.h"

namespace pushpull_operator {

// Thread-safe, as long as a JobState is with one thread.
class CoordinatorLink {
 public:
  // All must outlive the link. `timeout` is that of each call.
  CoordinatorLink(JobCoordinator& coordinators,
                  CertificateKeeper& keeper,
                  const pushpull::TimeSource& time,
                  std::chrono::seconds timeout)
      : coordinators_(coordinators), keeper_(keeper), time_(time), timeout_(timeout) {}

  // Blocks on the coordinator, and on the API server where the certificates may have changed.
  // Nothing: there is no coordinator, it gave no answer, or it is another job's.
  std::optional<CoordinatorReport> GetReport(const ObservedJob& job, JobState& state);

  // Sends a RequestSize, RequestSync or RequestSave. Blocks. kUnavailable: no coordinator can be
  // reached; else the errors of JobCoordinator.
  absl::Status Send(const ObservedJob& job, const Action& action, JobState& state);

 private:
  absl::StatusOr<CoordinatorReport> Call(const ObservedJob& job,
                                         const Stored<Pod>& pod,
                                         CertificateState& certificates);
  pushpull::Deadline CallDeadline() const { return pushpull::Deadline(time_.Now() + timeout_); }

  JobCoordinator& coordinators_;
  CertificateKeeper& keeper_;
  const pushpull::TimeSource& time_;
  const std::chrono::seconds timeout_;
};

}  // namespace pushpull_operator
