// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/retry_pace.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr SteadyTime kBegin{seconds(100)};

TEST(RetryPaceTest, DelaysDoubleUpToTheLongest) {
  RetryPace pace(milliseconds(300), seconds(1));

  EXPECT_EQ(pace.Failed(kBegin), milliseconds(300));
  EXPECT_EQ(pace.Failed(kBegin), milliseconds(600));
  EXPECT_EQ(pace.Failed(kBegin), seconds(1));
  EXPECT_EQ(pace.Failed(kBegin), seconds(1));
}

TEST(RetryPaceTest, JitterMakesDelaysLongerByHalfAtMost) {
  RetryPace pace(milliseconds(200), seconds(1), 0.5);

  EXPECT_EQ(pace.Failed(kBegin), milliseconds(250));
  EXPECT_EQ(pace.Failed(kBegin), milliseconds(500));
}

TEST(RetryPaceTest, AMinuteOfFailuresGivesSixWarnings) {
  RetryPace pace(milliseconds(20), seconds(1));
  int warnings = 0;

  for (int i = 0; i < 600; ++i) {
    pace.Failed(kBegin + i * milliseconds(100));
    if (pace.is_warning_due()) ++warnings;
  }

  EXPECT_EQ(warnings, 6);
  EXPECT_EQ(pace.Lasted(kBegin + seconds(60)), seconds(60));
}

TEST(RetryPaceTest, SuccessResetsThePace) {
  RetryPace pace(milliseconds(20), seconds(1));
  pace.Failed(kBegin);
  pace.Failed(kBegin + seconds(1));

  pace.Succeeded();

  EXPECT_EQ(pace.Lasted(kBegin + seconds(9)), Duration::zero());
  EXPECT_EQ(pace.Failed(kBegin + seconds(9)), milliseconds(20));
  EXPECT_TRUE(pace.is_warning_due());
}

}  // namespace
}  // namespace pushpull
