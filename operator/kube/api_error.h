// SPDX-License-Identifier: Apache-2.0
//
// An error response of the API server: Kubernetes' Status object, as a struct and as an
// absl::Status. Callers branch on the code; the text, with the invalid fields, is for people. The
// status carries the struct as a payload, for the few callers that need a reason or a cause.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull_operator {

// Longer pauses are implausible.
constexpr int64_t kRetryAfterSecondsMax = 86'400;

struct ErrorCause {
  std::string reason;   // "FieldValueInvalid"
  std::string message;  // "must be less than or equal to 1024"
  std::string field;    // "spec.servers.replicas"
  friend bool operator==(const ErrorCause&, const ErrorCause&) = default;
};

struct ApiError {
  int code = 0;        // HTTP status code
  std::string reason;  // "Conflict", "AlreadyExists", "Expired", ...; may be empty
  std::string message;
  std::vector<ErrorCause> causes;
  std::optional<std::chrono::seconds> retry_after;
  friend bool operator==(const ApiError&, const ApiError&) = default;
};

// Decodes the body of a response, or the object of a watch's ERROR event. A body that is not a
// Status (a proxy's page) becomes the message, truncated; `http_code` is used if the body has no
// code.
ApiError DecodeApiError(int http_code, absl::string_view body);

//   kInvalidArgument    400, 405, 406, 413, 415, 422
//   kUnauthenticated    401
//   kPermissionDenied   403
//   kNotFound           404
//   kAlreadyExists      409 with that reason
//   kAborted            409 otherwise: a conflict, read the object again
//   kOutOfRange         410: the resource version is too old, list again
//   kResourceExhausted  429
//   kUnavailable        408, 5xx
//   kUnknown            the rest
absl::StatusCode StatusCodeOf(const ApiError& error);

// `what` names the call and its object: "create pods default/mnist-server-0".
absl::Status ToStatus(const ApiError& error, absl::string_view what);

// The ApiError of a status from ToStatus.
std::optional<ApiError> ApiErrorOf(const absl::Status& status);

}  // namespace pushpull_operator
