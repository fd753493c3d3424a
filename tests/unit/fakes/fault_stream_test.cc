// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/inproc/fault_stream.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using std::chrono::milliseconds;

constexpr int kFrames = 100'000;

TEST(FaultStreamTest, WithoutFaultsEveryFrameArrivesOnceAndAtOnce) {
  FaultStream stream(1);
  for (int i = 0; i < 1000; ++i) {
    const std::vector<Arrival> arrivals = stream.Next({});

    ASSERT_EQ(arrivals.size(), 1U);
    EXPECT_EQ(arrivals[0].delay, Duration::zero());
    EXPECT_FALSE(arrivals[0].is_held_back);
  }
}

TEST(FaultStreamTest, FaultsAreAsFrequentAsConfigured) {
  FaultStream stream(2);
  const InprocFaults faults{.loss = 0.1, .duplication = 0.2, .reordering = 0.3};
  int lost = 0;
  int doubled = 0;
  int arrived = 0;
  int held_back = 0;

  for (int i = 0; i < kFrames; ++i) {
    const std::vector<Arrival> arrivals = stream.Next(faults);
    lost += arrivals.empty() ? 1 : 0;
    doubled += arrivals.size() == 2 ? 1 : 0;
    for (const Arrival& arrival : arrivals) {
      ++arrived;
      held_back += arrival.is_held_back ? 1 : 0;
    }
  }

  // Five standard deviations of a binomial with 100,000 trials are at most 0.8 %.
  EXPECT_NEAR(lost, 0.1 * kFrames, 0.008 * kFrames);
  EXPECT_NEAR(doubled, 0.2 * (kFrames - lost), 0.008 * kFrames);
  EXPECT_NEAR(held_back, 0.3 * arrived, 0.008 * arrived);
}

TEST(FaultStreamTest, DelaysFillTheirRange) {
  FaultStream stream(3);
  const InprocFaults faults{.delay_min = milliseconds(10), .delay_max = milliseconds(20)};
  Duration shortest = milliseconds(100);
  Duration longest{0};

  for (int i = 0; i < 1000; ++i) {
    const Duration delay = stream.Next(faults).front().delay;
    shortest = std::min(shortest, delay);
    longest = std::max(longest, delay);
  }

  EXPECT_GE(shortest, milliseconds(10));
  EXPECT_LT(shortest, milliseconds(11));
  EXPECT_LE(longest, milliseconds(20));
  EXPECT_GT(longest, milliseconds(19));
}

TEST(FaultStreamTest, ASeedReproducesItsFaults) {
  const InprocFaults faults{
      .delay_max = milliseconds(5), .loss = 0.3, .duplication = 0.3, .reordering = 0.3};
  const auto draw = [&](uint64_t seed) {
    FaultStream stream(seed);
    std::vector<Duration> delays;
    for (int i = 0; i < 100; ++i) {
      for (const Arrival& arrival : stream.Next(faults)) delays.push_back(arrival.delay);
    }
    return delays;
  };

  EXPECT_EQ(draw(4), draw(4));
  EXPECT_NE(draw(4), draw(5));
}

TEST(InprocFaultsTest, OnlyDelayIsStillReliable) {
  EXPECT_TRUE((InprocFaults{.delay_max = milliseconds(5)}).is_reliable());
  EXPECT_FALSE((InprocFaults{.loss = 0.1}).is_reliable());
  EXPECT_FALSE((InprocFaults{.duplication = 0.1}).is_reliable());
  EXPECT_FALSE((InprocFaults{.reordering = 0.1}).is_reliable());
}

}  // namespace
}  // namespace pushpull
