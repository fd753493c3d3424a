// SPDX-License-Identifier: Apache-2.0
//
// JobStatus and JobSize <-> their wire forms in proto/pushpull/v1/control.proto.
#pragma once

#include "absl/status/statusor.h"

#include "runtime/membership/job_status.h"

namespace pushpull {

namespace v1 {
class JobStatus;
class ResizeRequest;
class SaveCheckpointResponse;
}  // namespace v1

// The number of a save, or why there is none.
void ToProto(const absl::StatusOr<uint64_t>& number, v1::SaveCheckpointResponse& out);
void ToProto(const JobStatus& status, v1::JobStatus& out);

// kInvalidArgument says what is wrong with the message.
absl::StatusOr<JobStatus> FromProto(const v1::JobStatus& status);

void ToProto(const JobSize& size, v1::ResizeRequest& out);
JobSize FromProto(const v1::ResizeRequest& request);

}  // namespace pushpull
