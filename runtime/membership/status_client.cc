// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/status_client.h"

#include "absl/strings/str_cat.h"
#include <grpcpp/grpcpp.h>

#include "pushpull/v1/control.grpc.pb.h"

#include "runtime/base/status_macros.h"
#include "runtime/membership/job_status_proto.h"
#include "runtime/membership/stats_proto.h"
#include "runtime/tls/grpc_credentials.h"

namespace pushpull {
namespace {

absl::Status AboutCoordinator(const ControlTarget& coordinator, const absl::Status& status) {
  return {status.code(),
          absl::StrCat("coordinator at ", coordinator.address, ": ", status.message())};
}

std::unique_ptr<v1::Coordinator::Stub> MakeStub(const ControlTarget& coordinator) {
  return v1::Coordinator::NewStub(MakeControlChannel(coordinator));
}

absl::Status CallStatus(const ControlTarget& coordinator, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const absl::Status why =
      StatusFromCode(static_cast<uint32_t>(status.error_code()), status.error_message());
  return AboutCoordinator(coordinator, ExplainNoAnswer(why, coordinator.tls != nullptr));
}

}  // namespace

absl::StatusOr<JobStatus> FetchStatus(const ControlTarget& coordinator, Deadline deadline) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + deadline.remaining());
  v1::JobStatus response;
  PUSHPULL_RETURN_IF_ERROR(CallStatus(
      coordinator, MakeStub(coordinator)->GetStatus(&context, v1::GetStatusRequest(), &response)));
  absl::StatusOr<JobStatus> result = FromProto(response);
  if (!result.ok()) return AboutCoordinator(coordinator, result.status());
  return result;
}

absl::Status RequestResize(const ControlTarget& coordinator,
                           const JobSize& size,
                           Deadline deadline) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + deadline.remaining());
  v1::ResizeRequest request;
  ToProto(size, request);
  v1::Status response;
  PUSHPULL_RETURN_IF_ERROR(
      CallStatus(coordinator, MakeStub(coordinator)->Resize(&context, request, &response)));
  const absl::Status refused = FromProto(response);
  return refused.ok() ? refused : AboutCoordinator(coordinator, refused);
}

absl::StatusOr<uint64_t> RequestCheckpoint(const ControlTarget& coordinator, Deadline deadline) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + deadline.remaining());
  v1::SaveCheckpointResponse response;
  PUSHPULL_RETURN_IF_ERROR(CallStatus(
      coordinator,
      MakeStub(coordinator)->SaveCheckpoint(&context, v1::SaveCheckpointRequest(), &response)));
  const absl::Status refused = FromProto(response.status());
  if (!refused.ok()) return AboutCoordinator(coordinator, refused);
  return response.number();
}

absl::Status RequestMode(const ControlTarget& coordinator,
                         const ModeChange& change,
                         Deadline deadline) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + deadline.remaining());
  v1::SetModeRequest request;
  if (change.mode) request.set_mode(static_cast<uint32_t>(*change.mode));
  if (change.staleness) request.set_staleness(*change.staleness);
  if (change.backup_workers) request.set_backup_workers(*change.backup_workers);
  if (change.gated) request.set_gated(*change.gated);
  v1::Status response;
  PUSHPULL_RETURN_IF_ERROR(
      CallStatus(coordinator, MakeStub(coordinator)->SetMode(&context, request, &response)));
  const absl::Status refused = FromProto(response);
  return refused.ok() ? refused : AboutCoordinator(coordinator, refused);
}

}  // namespace pushpull
