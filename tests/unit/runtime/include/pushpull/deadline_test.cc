// SPDX-License-Identifier: Apache-2.0
#include "pushpull/deadline.h"

#include <gtest/gtest.h>

#include "runtime/base/mutex.h"
#include "runtime/base/time_source.h"

namespace pushpull {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(DeadlineTest, OneInThePastHasPassedAndLeavesNothing) {
  const Deadline deadline = Deadline::After(-hours(1));

  EXPECT_TRUE(deadline.has_passed());
  EXPECT_EQ(deadline.remaining(), Duration::zero());
}

TEST(DeadlineTest, OneInTheFutureHasTimeLeft) {
  const Deadline deadline = Deadline::After(hours(1));

  EXPECT_FALSE(deadline.has_passed());
  EXPECT_GT(deadline.remaining(), hours(1) - milliseconds(1000));
  EXPECT_LE(deadline.remaining(), hours(1));
}

TEST(DurationTest, SecondsAreReadBack) {
  EXPECT_EQ(ToSeconds(milliseconds(1500)), 1.5);
  EXPECT_EQ(FromSeconds(1.5), milliseconds(1500));
}

TEST(CondVarTest, AWaitEndsAtItsDeadlineWithTheLockHeld) {
  Mutex mu;
  CondVar never;
  const Deadline deadline = Deadline::After(milliseconds(5));

  MutexLock lock(mu);
  while (never.WaitUntil(mu, deadline)) {
  }

  EXPECT_TRUE(deadline.has_passed());
}

TEST(SystemTimeTest, IsTheSteadyClock) {
  const SteadyTime before = std::chrono::steady_clock::now();
  const SteadyTime now = SystemTime().Now();

  EXPECT_LE(before, now);
  EXPECT_LE(now, std::chrono::steady_clock::now());
}

}  // namespace
}  // namespace pushpull
