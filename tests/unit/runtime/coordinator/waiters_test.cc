// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/waiters.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

using std::chrono::seconds;

TEST(WaitersTest, OneThatWaitsIsWaitedForUntilItKnows) {
  Waiters waiters;
  const SteadyTime now{};

  waiters.OnAsked(now, 7, false);
  waiters.OnAsked(now, 8, false);
  EXPECT_FALSE(waiters.IsEmpty(now));
  waiters.OnAsked(now, 7, true);
  EXPECT_FALSE(waiters.IsEmpty(now));
  waiters.OnAsked(now, 8, true);

  EXPECT_TRUE(waiters.IsEmpty(now));
}

TEST(WaitersTest, OneThatHasGoneIsNotWaitedFor) {
  Waiters waiters;
  const SteadyTime now{};

  waiters.OnAsked(now, 7, false);

  EXPECT_FALSE(waiters.IsEmpty(now + Waiters::kPatience));
  EXPECT_TRUE(waiters.IsEmpty(now + Waiters::kPatience + seconds(1)));
}

TEST(WaitersTest, WhoAsksOnceIsNotWaitedFor) {
  Waiters waiters;

  waiters.OnAsked(SteadyTime{}, 0, false);

  EXPECT_TRUE(waiters.IsEmpty(SteadyTime{}));
}

TEST(WaitersTest, TheirNumberIsBounded) {
  Waiters waiters;
  const SteadyTime now{};
  for (uint64_t i = 1; i <= Waiters::kMax + 1; ++i) waiters.OnAsked(now, i, false);

  for (uint64_t i = 1; i <= Waiters::kMax; ++i) waiters.OnAsked(now, i, true);

  EXPECT_TRUE(waiters.IsEmpty(now));
}

}  // namespace
}  // namespace pushpull
