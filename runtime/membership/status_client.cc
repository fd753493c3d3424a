// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/status_client.h"

#include "absl/strings/str_cat.h"
#include <grpcpp/grpcpp.h>

#include "pushpull/v1/control.grpc.pb.h"

#include "runtime/base/status_macros.h"
#include "runtime/membership/control_proto.h"
#include "runtime/tls/grpc_credentials.h"

namespace pushpull {
namespace {

absl::Status AboutCoordinator(const ControlTarget& coordinator, const absl::Status& status) {
  return {status.code(),
          absl::StrCat("coordinator at ", coordinator.address, ": ", status.message())};
}

template <typename Request, typename Response>
using Method = grpc::Status (v1::Coordinator::Stub::*)(grpc::ClientContext*,
                                                       const Request&,
                                                       Response*);

// One call, over a connection of its own.
template <typename Request, typename Response>
absl::StatusOr<Response> Call(const ControlTarget& coordinator,
                              Deadline deadline,
                              Method<Request, Response> method,
                              const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + deadline.remaining());
  const auto stub = v1::Coordinator::NewStub(MakeRequestChannel(coordinator));
  Response response;
  const grpc::Status status = ((*stub).*method)(&context, request, &response);
  if (status.ok()) return response;
  const absl::Status why =
      StatusFromCode(static_cast<uint32_t>(status.error_code()), status.error_message());
  return AboutCoordinator(coordinator, ExplainNoAnswer(why, coordinator.tls != nullptr));
}

// The coordinator's own status.
absl::Status Answer(const ControlTarget& coordinator, const v1::Status& response) {
  const absl::Status status = FromProto(response);
  return status.ok() ? status : AboutCoordinator(coordinator, status);
}

template <typename Change, typename Request>
absl::Status Ask(const ControlTarget& coordinator,
                 Deadline deadline,
                 Method<Request, v1::Status> method,
                 const Change& change) {
  Request request;
  ToProto(change, request);
  PUSHPULL_ASSIGN_OR_RETURN(const v1::Status response,
                            Call(coordinator, deadline, method, request));
  return Answer(coordinator, response);
}

}  // namespace

absl::StatusOr<JobStatus> FetchStatus(const ControlTarget& coordinator, Deadline deadline) {
  return FetchStatusAgain(coordinator, 0, deadline);
}

absl::StatusOr<JobStatus> FetchStatusAgain(const ControlTarget& coordinator,
                                           uint64_t waiter,
                                           Deadline deadline) {
  v1::GetStatusRequest request;
  request.set_waiter(waiter);
  PUSHPULL_ASSIGN_OR_RETURN(
      const v1::JobStatus response,
      Call(coordinator, deadline, &v1::Coordinator::Stub::GetStatus, request));
  absl::StatusOr<JobStatus> result = FromProto(response);
  if (!result.ok()) return AboutCoordinator(coordinator, result.status());
  return result;
}

absl::Status RequestResize(const ControlTarget& coordinator,
                           const JobSize& size,
                           Deadline deadline) {
  return Ask(coordinator, deadline, &v1::Coordinator::Stub::Resize, size);
}

absl::StatusOr<uint64_t> RequestCheckpoint(const ControlTarget& coordinator, Deadline deadline) {
  PUSHPULL_ASSIGN_OR_RETURN(const v1::SaveCheckpointResponse response,
                            Call(coordinator,
                                 deadline,
                                 &v1::Coordinator::Stub::SaveCheckpoint,
                                 v1::SaveCheckpointRequest()));
  PUSHPULL_RETURN_IF_ERROR(Answer(coordinator, response.status()));
  return response.number();
}

absl::Status RequestMode(const ControlTarget& coordinator,
                         const ModeChange& change,
                         Deadline deadline) {
  return Ask(coordinator, deadline, &v1::Coordinator::Stub::SetMode, change);
}

absl::StatusOr<uint64_t> RequestTrace(const ControlTarget& coordinator,
                                      const TraceRequest& request,
                                      Deadline deadline) {
  v1::TraceRequest message;
  ToProto(request, message);
  PUSHPULL_ASSIGN_OR_RETURN(
      const v1::StartTraceResponse response,
      Call(coordinator, deadline, &v1::Coordinator::Stub::StartTrace, message));
  PUSHPULL_RETURN_IF_ERROR(Answer(coordinator, response.status()));
  return response.number();
}

absl::StatusOr<TraceParts> FetchTrace(const ControlTarget& coordinator,
                                      uint64_t number,
                                      uint64_t from,
                                      Deadline deadline) {
  v1::TakeTraceRequest message;
  message.set_number(number);
  message.set_from(from);
  PUSHPULL_ASSIGN_OR_RETURN(
      const v1::TakeTraceResponse response,
      Call(coordinator, deadline, &v1::Coordinator::Stub::TakeTrace, message));
  PUSHPULL_RETURN_IF_ERROR(Answer(coordinator, response.status()));
  absl::StatusOr<TraceParts> parts = FromProto(response);
  if (!parts.ok()) return AboutCoordinator(coordinator, parts.status());
  return parts;
}

}  // namespace pushpull
