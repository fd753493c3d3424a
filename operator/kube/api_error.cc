// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/api_error.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"

#include "operator/kube/json_fields.h"

namespace pushpull_operator {
namespace {

constexpr absl::string_view kPayload = "pushpull.dev/kubernetes-status";
// For a body that is not a Status, such as a proxy's page.
constexpr size_t kForeignBodyMax = 200;
constexpr size_t kCausesMax = 50;

std::string OneLine(absl::string_view text) {
  std::string line(text.substr(0, kForeignBodyMax));
  for (char& c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  return line;
}

void DecodeDetails(const Json& details, ApiError& error) {
  if (const std::optional<int64_t> seconds = IntField(details, "retryAfterSeconds");
      seconds.has_value() && *seconds > 0) {
    error.retry_after = std::chrono::seconds(std::min(*seconds, kRetryAfterSecondsMax));
  }
  for (const Json& cause : ListField(details, "causes")) {
    if (error.causes.size() == kCausesMax) return;
    error.causes.push_back({.reason = StringField(cause, "reason"),
                            .message = StringField(cause, "message"),
                            .field = StringField(cause, "field")});
  }
}

Json ToJson(const ApiError& error) {
  Json causes = Json::array();
  for (const ErrorCause& cause : error.causes) {
    causes.push_back(
        {{"reason", cause.reason}, {"message", cause.message}, {"field", cause.field}});
  }
  Json json{{"kind", "Status"}, {"code", error.code}, {"reason", error.reason}};
  json["message"] = error.message;
  json["details"]["causes"] = std::move(causes);
  if (error.retry_after.has_value()) {
    json["details"]["retryAfterSeconds"] = error.retry_after->count();
  }
  return json;
}

}  // namespace

ApiError DecodeApiError(int http_code, absl::string_view body) {
  ApiError error{.code = http_code};
  const std::optional<Json> json = ParseJson(body);
  if (!json.has_value() || StringField(*json, "kind") != "Status") {
    error.message = OneLine(absl::StripAsciiWhitespace(body));
    return error;
  }
  const int64_t code = IntField(*json, "code").value_or(http_code);
  if (code >= 100 && code <= 599) error.code = static_cast<int>(code);
  error.reason = StringField(*json, "reason");
  error.message = StringField(*json, "message");
  if (const Json* details = Find(*json, "details"); details != nullptr) {
    DecodeDetails(*details, error);
  }
  return error;
}

absl::StatusCode StatusCodeOf(const ApiError& error) {
  switch (error.code) {
    case 400:
    case 405:
    case 406:
    case 413:
    case 415:
    case 422:
      return absl::StatusCode::kInvalidArgument;
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 409:
      return error.reason == "AlreadyExists" ? absl::StatusCode::kAlreadyExists
                                             : absl::StatusCode::kAborted;
    case 410:
      return absl::StatusCode::kOutOfRange;
    case 408:
      return absl::StatusCode::kUnavailable;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    default:
      return error.code >= 500 ? absl::StatusCode::kUnavailable : absl::StatusCode::kUnknown;
  }
}

absl::Status ToStatus(const ApiError& error, absl::string_view what) {
  std::string text = absl::StrCat(what, ": the API server answers ", error.code);
  if (!error.reason.empty()) absl::StrAppend(&text, " ", error.reason);
  if (!error.message.empty()) absl::StrAppend(&text, ": ", error.message);
  for (const ErrorCause& cause : error.causes) {
    // The message usually has them already.
    if (absl::string_view(text).find(cause.message) != absl::string_view::npos) continue;
    absl::StrAppend(&text, "; ", cause.field, ": ", cause.message);
  }
  absl::Status status(StatusCodeOf(error), text);
  status.SetPayload(kPayload, absl::Cord(ToText(ToJson(error))));
  return status;
}

std::optional<ApiError> ApiErrorOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
  if (!payload.has_value()) return std::nullopt;
  return DecodeApiError(0, std::string(*payload));
}

}  // namespace pushpull_operator
