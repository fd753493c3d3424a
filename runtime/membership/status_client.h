// SPDX-License-Identifier: Apache-2.0
//
// Requests to a coordinator from commands, the launcher and the operator, over gRPC: for the job's
// status, a new size, a new mode, a checkpoint, a trace.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/membership/control_client.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Blocks until the answer or `deadline`. Thread-safe. Errors name the coordinator:
//
//   kUnavailable        nothing answers there, the coordinator is starting or ending, or the
//                       certificates do not match. Retry.
//   kDeadlineExceeded   no answer in time. Retry.
//   kResourceExhausted  the answer exceeds 4 MiB: not a coordinator of pushpull. Do not retry.
//   kInvalidArgument    the answer cannot be read: another version of the program. Do not retry.
absl::StatusOr<JobStatus> FetchStatus(const ControlTarget& coordinator, Deadline deadline);
// The same, for a caller that asks repeatedly until the job is over: it passes the same random
// number each time, so that the coordinator stays until the caller knows of the end.
absl::StatusOr<JobStatus> FetchStatusAgain(const ControlTarget& coordinator,
                                           uint64_t waiter,
                                           Deadline deadline);

// Changes the desired size. Returns once the coordinator has accepted it, not once it is reached.
// Errors as above, and from the coordinator:
//
//   kInvalidArgument     a size is out of range.
//   kFailedPrecondition  not possible in the job's phase.
absl::Status RequestResize(const ControlTarget& coordinator,
                           const JobSize& size,
                           Deadline deadline);

// Starts a checkpoint and returns its number: it is over once JobStatus::checkpoint.finished is at
// least that. Errors as FetchStatus, and kFailedPrecondition: the job has no spec.checkpoint, or is
// not running.
absl::StatusOr<uint64_t> RequestCheckpoint(const ControlTarget& coordinator, Deadline deadline);

// Changes the synchronization mode. As RequestResize.
absl::Status RequestMode(const ControlTarget& coordinator,
                         const ModeChange& change,
                         Deadline deadline);

// Starts a trace, replacing one that is under way, and returns its number. Errors as FetchStatus,
// and kInvalidArgument: steps or seconds out of range; kFailedPrecondition: the job is not running.
absl::StatusOr<uint64_t> RequestTrace(const ControlTarget& coordinator,
                                      const TraceRequest& request,
                                      Deadline deadline);
// The parts of trace `number` that have arrived, from part `from` on; the coordinator discards
// earlier parts. Errors as FetchStatus, and kNotFound: another trace or another coordinator has
// been started.
absl::StatusOr<TraceParts> FetchTrace(const ControlTarget& coordinator,
                                      uint64_t number,
                                      uint64_t from,
                                      Deadline deadline);

}  // namespace pushpull
