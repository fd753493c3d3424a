// SPDX-License-Identifier: Apache-2.0
//
// The part of the client that streams.
#include <utility>

#include "absl/strings/str_cat.h"

#include "operator/kube/client.h"
#include "operator/kube/watch_frames.h"
#include "runtime/base/status_macros.h"

namespace pushpull_operator {
namespace {

using pushpull::Deadline;

// For connecting, and for the server to end a watch whose time is over.
constexpr std::chrono::seconds kConnectTime{30};

absl::Status WithContext(const absl::Status& status, absl::string_view what) {
  if (status.ok() || ApiErrorOf(status).has_value()) return status;
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

}  // namespace

absl::Status KubeClient::Watch(const ResourceType& type,
                               const WatchOptions& options,
                               absl::FunctionRef<absl::Status(WatchEvent)> on_event,
                               const Cancellation& cancellation) {
  Call call = MakeCall("watch", "GET", type, {.name = options.selection.object_namespace});
  call.request.target = WithQuery(credentials_.access().path_prefix +
                                      CollectionTarget(type, options.selection.object_namespace),
                                  {{"watch", "true"},
                                   {"allowWatchBookmarks", "true"},
                                   {"labelSelector", options.selection.label_selector},
                                   {"fieldSelector", options.selection.field_selector},
                                   {"resourceVersion", options.resource_version},
                                   {"timeoutSeconds", absl::StrCat(options.duration.count())}});
  const Deadline begin_before(time_.Now() + kConnectTime);
  PUSHPULL_RETURN_IF_ERROR(TakeTurn(call, begin_before, cancellation));
  const AccessNow access = credentials_.Current();
  const ServerAddress& server = credentials_.access().server;
  absl::StatusOr<std::unique_ptr<Connection>> connection =
      Connection::Open(server, access.tls, {Deadline::After(kConnectTime), &cancellation});
  if (!connection.ok()) {
    Count(call, 0);
    return WithContext(connection.status(), call.what);
  }
  WatchFrameSplitter splitter;
  const auto on_frame = [&](absl::string_view frame) -> absl::Status {
    PUSHPULL_ASSIGN_OR_RETURN(WatchEvent event, DecodeWatchEvent(frame));
    if (event.type == WatchEventType::kUnknown) return absl::OkStatus();
    if (event.type == WatchEventType::kError) return ToStatus(event.error, call.what);
    return on_event(std::move(event));
  };
  const Deadline end = Deadline::After(options.duration + kConnectTime);
  const absl::StatusOr<HttpResponse> response =
      Exchange(**connection,
               call.request,
               host_header_,
               access.token,
               [&](absl::string_view piece) { return splitter.Feed(piece, on_frame); },
               {end, &cancellation});
  Count(call, response.ok() ? response->code : 0);
  if (!response.ok()) return WithContext(response.status(), call.what);
  if (response->code == 200) return absl::OkStatus();
  if (response->code == 401) credentials_.Distrust();
  ApiError error = DecodeApiError(response->code, response->body);
  if (!error.retry_after.has_value()) error.retry_after = response->retry_after;
  return ToStatus(error, call.what);
}

}  // namespace pushpull_operator
