// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "operator/controller/job_state.h"

namespace pushpull_operator {
namespace {

using std::chrono::seconds;

constexpr WallTime kNow{seconds(1000)};

TEST(CoordinatorBackoffTest, PausesDoubleUpToTheirLimit) {
  CoordinatorBackoff backoff;
  WallTime now = kNow;

  for (const int pause : {4, 8, 16, 32, 32}) {
    EXPECT_TRUE(backoff.MayAsk("a", now));
    backoff.OnTimeout("a", now);
    EXPECT_FALSE(backoff.MayAsk("a", now + seconds(pause - 1)));
    now += seconds(pause);
  }
  EXPECT_TRUE(backoff.MayAsk("a", now));
}

TEST(CoordinatorBackoffTest, AnAnswerEndsThem) {
  CoordinatorBackoff backoff;
  backoff.OnTimeout("a", kNow);
  backoff.OnTimeout("a", kNow);

  backoff.OnAnswer();
  EXPECT_TRUE(backoff.MayAsk("a", kNow));
  backoff.OnTimeout("a", kNow);

  EXPECT_TRUE(backoff.MayAsk("a", kNow + CoordinatorBackoff::kPauseMin));
}

TEST(CoordinatorBackoffTest, AnotherPodIsAskedAtOnce) {
  CoordinatorBackoff backoff;
  backoff.OnTimeout("a", kNow);

  EXPECT_TRUE(backoff.MayAsk("b", kNow));
}

}  // namespace
}  // namespace pushpull_operator
