// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/api_error.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kInvalid[] = R"({"kind":"Status","code":422,"reason":"Invalid",
  "message":"TrainingJob \"mnist\" is invalid",
  "details":{"causes":[{"reason":"FieldValueInvalid","message":"must be at most 1024",
                        "field":"spec.servers.replicas"}],"retryAfterSeconds":3}})";

TEST(ApiErrorTest, DecodesReasonCausesAndRetryAfter) {
  const ApiError error = DecodeApiError(422, kInvalid);

  EXPECT_EQ(error.reason, "Invalid");
  EXPECT_THAT(error.causes,
              ElementsAre(ErrorCause{.reason = "FieldValueInvalid",
                                     .message = "must be at most 1024",
                                     .field = "spec.servers.replicas"}));
  EXPECT_EQ(error.retry_after, std::chrono::seconds(3));
}

TEST(ApiErrorTest, IsCarriedByTheStatus) {
  const ApiError error = DecodeApiError(422, kInvalid);

  const absl::Status status = ToStatus(error, "create trainingjobs default");

  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("create trainingjobs default: the API server answers 422 Invalid"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("spec.servers.replicas: must be at most 1024"));
  EXPECT_EQ(ApiErrorOf(status), error);
  EXPECT_EQ(ApiErrorOf(absl::NotFoundError("elsewhere")), std::nullopt);
}

TEST(ApiErrorTest, CodesSayWhatTheCallerShouldDo) {
  const std::vector<std::pair<ApiError, absl::StatusCode>> table = {
      {{.code = 400}, absl::StatusCode::kInvalidArgument},
      {{.code = 401}, absl::StatusCode::kUnauthenticated},
      {{.code = 403}, absl::StatusCode::kPermissionDenied},
      {{.code = 404}, absl::StatusCode::kNotFound},
      {{.code = 409, .reason = "AlreadyExists"}, absl::StatusCode::kAlreadyExists},
      {{.code = 409, .reason = "Conflict"}, absl::StatusCode::kAborted},
      {{.code = 410}, absl::StatusCode::kOutOfRange},
      {{.code = 422}, absl::StatusCode::kInvalidArgument},
      {{.code = 429}, absl::StatusCode::kResourceExhausted},
      {{.code = 500}, absl::StatusCode::kUnavailable},
      {{.code = 503}, absl::StatusCode::kUnavailable},
      {{.code = 418}, absl::StatusCode::kUnknown},
  };

  for (const auto& [error, code] : table) EXPECT_EQ(StatusCodeOf(error), code) << error.code;
}

TEST(ApiErrorTest, AProxysPageBecomesAOneLineMessage) {
  const ApiError error = DecodeApiError(502, "<html>\nBad Gateway" + std::string(1000, 'x'));

  EXPECT_EQ(error.code, 502);
  EXPECT_THAT(error.message, HasSubstr("<html> Bad Gateway"));
  EXPECT_LE(error.message.size(), 200u);
}

TEST(ApiErrorTest, FieldsOfWrongTypeAreIgnored) {
  const ApiError error = DecodeApiError(
      500, R"({"kind":"Status","code":"x","reason":7,"details":{"causes":[1,{"field":[]}]}})");

  EXPECT_EQ(error.code, 500);
  EXPECT_EQ(error.reason, "");
  EXPECT_EQ(error.causes.size(), 2u);
}

}  // namespace
}  // namespace pushpull_operator
