// SPDX-License-Identifier: Apache-2.0
//
// What the API server says when it refuses: the Status object of Kubernetes, as a struct and as the
// project's status. Callers branch on the code; the text, with the fields that are wrong, is for
// people. The struct travels inside the status for the few who need a reason or a cause.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull_operator {

struct ErrorCause {
  std::string reason;   // "FieldValueInvalid"
  std::string message;  // "must be less than or equal to 1024"
  std::string field;    // "spec.servers.replicas"
  friend bool operator==(const ErrorCause&, const ErrorCause&) = default;
};

struct ApiError {
  int code = 0;         // of HTTP
  std::string reason;   // "Conflict", "AlreadyExists", "Expired", ...; may be empty
  std::string message;  // the server's words
  std::vector<ErrorCause> causes;
  std::optional<std::chrono::seconds> retry_after;
  friend bool operator==(const ApiError&, const ApiError&) = default;
};

// The body of an answer, or of an ERROR event in a watch. A body that is no Status (a proxy's page)
// becomes the message, cut; `http_code` counts where the body has no code of its own.
ApiError DecodeApiError(int http_code, absl::string_view body);

// kInvalidArgument 400, 405, 406, 413, 415, 422   kUnauthenticated 401   kPermissionDenied 403
// kNotFound 404   kAlreadyExists 409 with that reason   kAborted every other 409
// kOutOfRange 410   kResourceExhausted 429   kUnavailable 408, 5xx   kUnknown the rest
absl::StatusCode StatusCodeOf(const ApiError& error);

// `what` names the call and its object: "create pods default/mnist-server-0".
absl::Status ToStatus(const ApiError& error, absl::string_view what);

// What the API server said, where `status` comes from ToStatus.
std::optional<ApiError> ApiErrorOf(const absl::Status& status);

}  // namespace pushpull_operator
