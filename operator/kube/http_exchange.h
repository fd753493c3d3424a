// SPDX-License-Identifier: Apache-2.0
//
// One HTTP/1.1 request and its answer over a connection. http_exchange.cc alone sees the library.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "operator/kube/connection.h"

namespace pushpull_operator {

struct HttpRequest {
  std::string method;
  std::string target;  // with its query
  std::string accept = "application/json";
  std::string content_type;
  std::string body;
};

struct HttpResponse {
  int code = 0;
  std::string body;
  std::optional<std::chrono::seconds> retry_after;
  std::optional<std::chrono::sys_seconds> date;  // of the server's clock
  bool can_reuse_connection = false;
};

// A page of a list is a few megabytes.
inline constexpr size_t kResponseBytesMax = size_t{64} << 20;

// Gets the body of an answer 200 piece by piece instead of HttpResponse::body. An error ends the
// exchange with it.
using BodySink = std::function<absl::Status(absl::string_view piece)>;

// `host` is the Host header; `token` goes into the Authorization header unless it is empty; `sink`
// may be null. An error means that there was no answer, or not all of it; the connection cannot be
// used again then.
absl::StatusOr<HttpResponse> Exchange(Connection& connection,
                                      const HttpRequest& request,
                                      const std::string& host,
                                      const std::string& token,
                                      const BodySink& sink,
                                      const CallLimit& limit);

}  // namespace pushpull_operator
