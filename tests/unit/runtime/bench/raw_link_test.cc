// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/raw_link.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(RawLinkTest, MovesBytesAndCountsWhatThatCosts) {
  RawLink link;

  const absl::StatusOr<LinkBurst> burst = link.Measure(4'000'000);

  ASSERT_TRUE(burst.ok()) << burst.status();
  EXPECT_GT(burst->bytes_per_second, 0);
  EXPECT_GT(burst->cpu_seconds_per_gigabyte, 0);
}

TEST(RoundTripsTest, EachIsMeasured) {
  const absl::StatusOr<std::vector<double>> seconds = MeasureRoundTrips(1'024, 10);

  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_EQ(seconds->size(), 10);
  for (const double one : *seconds) EXPECT_GT(one, 0);
}

}  // namespace
}  // namespace pushpull
