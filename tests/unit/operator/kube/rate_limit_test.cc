// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/rate_limit.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr pushpull::SteadyTime kBegin{seconds(100)};

TEST(RateLimitTest, ABurstGoesAtOnceThenTurnsAreEven) {
  TokenBucket bucket({.qps = 10, .burst = 3}, kBegin);

  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.TakeTurn(kBegin), kBegin);
  EXPECT_EQ(bucket.TakeTurn(kBegin), kBegin + milliseconds(100));
  EXPECT_EQ(bucket.TakeTurn(kBegin), kBegin + milliseconds(200));
}

TEST(RateLimitTest, RestFillsTheBurstAndNoMore) {
  TokenBucket bucket({.qps = 10, .burst = 3}, kBegin);
  for (int i = 0; i < 5; ++i) bucket.TakeTurn(kBegin);
  const auto later = kBegin + seconds(60);

  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.TakeTurn(later), later);
  EXPECT_EQ(bucket.TakeTurn(later), later + milliseconds(100));
}

TEST(RateLimitTest, InTheLongRunThereAreQpsTurnsASecond) {
  TokenBucket bucket({.qps = 50, .burst = 100}, kBegin);
  pushpull::SteadyTime last = kBegin;

  for (int i = 0; i < 100 + 50 * 60; ++i) last = bucket.TakeTurn(kBegin);

  EXPECT_EQ(last, kBegin + seconds(60));
}

}  // namespace
}  // namespace pushpull_operator
