// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/peer_clock.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kOffset = seconds(1000);

// An exchange with a peer whose clock is kOffset ahead; it takes 5 ms to answer.
ClockSample Exchange(Duration there, Duration back) {
  const SteadyTime sent{seconds(50)};
  const SteadyTime arrived = sent + there;
  const SteadyTime answered = arrived + milliseconds(5);
  return {.sent = sent,
          .peer_received = arrived + kOffset,
          .peer_sent = answered + kOffset,
          .received = answered + back};
}

TEST(ClockEstimateTest, IsZeroBeforeTheFirstSample) {
  EXPECT_EQ(ClockEstimate().offset(), Duration::zero());
}

TEST(ClockEstimateTest, SymmetricDelaysGiveTheExactOffset) {
  ClockEstimate estimate;

  estimate.Add(Exchange(milliseconds(3), milliseconds(3)));

  EXPECT_EQ(estimate.offset(), kOffset);
}

TEST(ClockEstimateTest, AsymmetryErrsByHalfTheDifference) {
  ClockEstimate estimate;

  estimate.Add(Exchange(milliseconds(8), milliseconds(2)));

  EXPECT_EQ(estimate.offset(), kOffset + milliseconds(3));
}

TEST(ClockEstimateTest, UsesTheShortestRoundTrip) {
  ClockEstimate estimate;

  estimate.Add(Exchange(milliseconds(40), milliseconds(0)));
  estimate.Add(Exchange(milliseconds(1), milliseconds(1)));
  estimate.Add(Exchange(milliseconds(0), milliseconds(30)));

  EXPECT_EQ(estimate.offset(), kOffset);
}

TEST(ClockEstimateTest, ASampleExpiresAfterSixteenMore) {
  ClockEstimate estimate;
  estimate.Add(Exchange(milliseconds(1), milliseconds(1)));
  for (int i = 0; i < 15; ++i) estimate.Add(Exchange(milliseconds(4), milliseconds(2)));
  ASSERT_EQ(estimate.offset(), kOffset);

  estimate.Add(Exchange(milliseconds(4), milliseconds(2)));

  EXPECT_EQ(estimate.offset(), kOffset + milliseconds(1));
}

}  // namespace
}  // namespace pushpull
