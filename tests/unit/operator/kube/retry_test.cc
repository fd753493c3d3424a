// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/retry.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RetryTest, UnsentRequestsAreAlwaysRetried) {
  EXPECT_EQ(DelayBeforeRetry({.was_sent = false}, Repeat::kUnsafe, 1, 0), milliseconds(50));
}

TEST(RetryTest, LostAnswersRetrySafeRequestsOnly) {
  EXPECT_EQ(DelayBeforeRetry({.was_sent = true}, Repeat::kUnsafe, 1, 0), std::nullopt);
  EXPECT_EQ(DelayBeforeRetry({.was_sent = true}, Repeat::kSafe, 1, 0), milliseconds(50));
}

TEST(RetryTest, DelaysDoubleUpToFiveSeconds) {
  EXPECT_EQ(DelayBeforeRetry({}, Repeat::kSafe, 3, 0), milliseconds(200));
  EXPECT_EQ(DelayBeforeRetry({}, Repeat::kSafe, 9, 0), seconds(5));
}

TEST(RetryTest, JitterNeverShortensAPause) {
  EXPECT_EQ(DelayBeforeRetry(
                {.was_sent = true, .code = 429, .retry_after = seconds(4)}, Repeat::kSafe, 1, 0.5),
            seconds(5));
}

TEST(RetryTest, BusyAnswersAreRetriedAfterRetryAfter) {
  const HttpResponse limited{.was_sent = true, .code = 429, .retry_after = seconds(7)};
  const HttpResponse silent{.was_sent = true, .code = 429};
  const HttpResponse unavailable{.was_sent = true, .code = 503, .retry_after = seconds(2)};

  EXPECT_EQ(DelayBeforeRetry(limited, Repeat::kUnsafe, 1, 0), seconds(7));
  EXPECT_EQ(DelayBeforeRetry(silent, Repeat::kUnsafe, 1, 0), seconds(1));
  EXPECT_EQ(DelayBeforeRetry(unavailable, Repeat::kUnsafe, 1, 0), seconds(2));
}

TEST(RetryTest, RefusalsAreNotRetried) {
  for (const int code : {400, 403, 404, 409, 422, 500, 503}) {
    EXPECT_EQ(DelayBeforeRetry({.was_sent = true, .code = code}, Repeat::kSafe, 1, 0), std::nullopt)
        << code;
  }
}

TEST(RetryTest, AnswersThatAreTooLargeAreNotRetried) {
  const HttpResponse large{.status = absl::ResourceExhaustedError("large"), .was_sent = true};

  EXPECT_EQ(DelayBeforeRetry(large, Repeat::kSafe, 1, 0), std::nullopt);
}

TEST(RetryTest, AttemptsAreBounded) {
  EXPECT_EQ(DelayBeforeRetry({}, Repeat::kSafe, kAttemptsMax, 0), std::nullopt);
}

}  // namespace
}  // namespace pushpull_operator
