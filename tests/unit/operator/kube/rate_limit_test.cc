// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/rate_limit.h"

#include <gtest/gtest.h>

namespace pushpull_operator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr pushpull::SteadyTime kBegin{seconds(100)};

TEST(RateLimitTest, ABurstPassesThenThePaceIsSteady) {
  TokenBucket bucket({.qps = 10, .burst = 3}, kBegin);

  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.Reserve(kBegin), kBegin);
  EXPECT_EQ(bucket.Reserve(kBegin), kBegin + milliseconds(100));
  EXPECT_EQ(bucket.Reserve(kBegin), kBegin + milliseconds(200));
}

TEST(RateLimitTest, IdleTimeRefillsTheBurstOnly) {
  TokenBucket bucket({.qps = 10, .burst = 3}, kBegin);
  for (int i = 0; i < 5; ++i) bucket.Reserve(kBegin);
  const auto later = kBegin + seconds(60);

  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.Reserve(later), later);
  EXPECT_EQ(bucket.Reserve(later), later + milliseconds(100));
}

TEST(RateLimitTest, TheLongRunRateIsQps) {
  TokenBucket bucket({.qps = 50, .burst = 100}, kBegin);
  pushpull::SteadyTime last = kBegin;

  for (int i = 0; i < 100 + 50 * 60; ++i) last = bucket.Reserve(kBegin);

  EXPECT_EQ(last, kBegin + seconds(60));
}

}  // namespace
}  // namespace pushpull_operator
