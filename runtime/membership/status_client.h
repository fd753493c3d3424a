// SPDX-License-Identifier: Apache-2.0
//
// What others than its members ask of a coordinator, over gRPC: the job's status, another size,
// another mode, a checkpoint.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "runtime/base/deadline.h"
#include "runtime/membership/control_client.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Blocks until the answer or `deadline`. Every error names the coordinator.
// Thread-safe.
//
// kUnavailable       nobody answers there, the coordinator is just starting or ending, or the
//                    certificates of the two ends do not fit. Retry.
// kDeadlineExceeded  no answer in time.
// kInvalidArgument   the answer cannot be read: another version of the program. Do not retry.
absl::StatusOr<JobStatus> FetchStatus(const ControlTarget& coordinator, Deadline deadline);

// Makes the job `size`. Returns when the coordinator has taken it over, not
// when it is reached. Errors as above, and those with which the coordinator refuses:
// kInvalidArgument, a number that cannot be; kFailedPrecondition, not in the job's phase.
absl::Status RequestResize(const ControlTarget& coordinator,
                           const JobSize& size,
                           Deadline deadline);

// Saves a checkpoint of the running job. Returns its number when the coordinator has taken the
// request over; the save has ended when JobStatus::checkpoint.finished is not below it. Errors as
// FetchStatus, and kFailedPrecondition: the job has no spec.checkpoint, or does not run.
absl::StatusOr<uint64_t> RequestCheckpoint(const ControlTarget& coordinator, Deadline deadline);

// Changes the mode in which the job's workers push. Likewise.
absl::Status RequestMode(const ControlTarget& coordinator,
                         const ModeChange& change,
                         Deadline deadline);

}  // namespace pushpull
