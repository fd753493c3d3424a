// SPDX-License-Identifier: Apache-2.0
//
// The structs of control.h and job_status.h <-> their wire form in proto/pushpull/v1/control.proto.
// Generated types are only named here. FromProto checks the form of what a peer sent (known
// enumerators, lists of bounded length, ids in range); the receiver checks whether it makes sense
// for the job.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/membership/control.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

namespace v1 {
class FromMember;
class JobStatus;
class ResizeRequest;
class SaveCheckpointResponse;
class SetModeRequest;
class StartTraceResponse;
class Status;
class TakeTraceResponse;
class ToMember;
class TraceRequest;
}  // namespace v1

inline constexpr int kWireServersMax = 1024;  // spec.servers.replicas
inline constexpr int kWireWorkersMax = 65536;
// A list of a million tensors or 16 Mi chunks stays far below this, but exceeds gRPC's default of 4
// MiB.
inline constexpr int kWireMessageBytesMax = 256 << 20;

// The status for a code from gRPC or a message; both use the numbers of google.rpc.Code, as absl
// does. Other numbers become kUnknown.
absl::Status StatusFromCode(uint32_t code, absl::string_view text);

void ToProto(const FromMember& message, v1::FromMember& out);
void ToProto(const ToMember& message, v1::ToMember& out);
void ToProto(const JobStatus& status, v1::JobStatus& out);
void ToProto(const JobSize& size, v1::ResizeRequest& out);
void ToProto(const ModeChange& change, v1::SetModeRequest& out);
void ToProto(const absl::Status& status, v1::Status& out);
// The number of a save, or why there is none.
void ToProto(const absl::StatusOr<uint64_t>& number, v1::SaveCheckpointResponse& out);
void ToProto(const TraceRequest& request, v1::TraceRequest& out);
// The number of a trace, or why there is none.
void ToProto(const absl::StatusOr<uint64_t>& number, v1::StartTraceResponse& out);
void ToProto(const absl::StatusOr<TraceParts>& parts, v1::TakeTraceResponse& out);

// kInvalidArgument names the field and what is wrong with it, as in
// "register_tensors.tensors[layer.weight].dtype: 77 is not known". The peer is broken: end its
// session.
absl::StatusOr<FromMember> FromProto(const v1::FromMember& message);
absl::StatusOr<ToMember> FromProto(const v1::ToMember& message);
absl::StatusOr<JobStatus> FromProto(const v1::JobStatus& status);
absl::StatusOr<JobSize> FromProto(const v1::ResizeRequest& request);
absl::StatusOr<ModeChange> FromProto(const v1::SetModeRequest& request);
absl::StatusOr<TraceRequest> FromProto(const v1::TraceRequest& request);
// Ignores the status, which the caller must check first.
absl::StatusOr<TraceParts> FromProto(const v1::TakeTraceResponse& response);
absl::Status FromProto(const v1::Status& status);  // as it was sent

}  // namespace pushpull
