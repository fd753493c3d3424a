// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/collective_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::ElementsAre;

TEST(CollectiveSummaryTest, FiguresFollowFromTheSlowestRanks) {
  const CollectiveMeasurement measured = {
      .bytes = 1000, .seconds = {3e-6, 1e-6, 2e-6}, .bytes_sent = 1500};

  const CollectiveFigures figures = FiguresOf({.ranks = 4}, measured);

  EXPECT_DOUBLE_EQ(figures.p50_seconds, 2e-6);
  EXPECT_DOUBLE_EQ(figures.least_seconds, 1e-6);
  EXPECT_DOUBLE_EQ(figures.p99_seconds, 3e-6);
  EXPECT_DOUBLE_EQ(figures.bytes_per_second, 5e8);
  EXPECT_DOUBLE_EQ(figures.bus_bytes_per_second, 1.5 * 5e8);
  EXPECT_DOUBLE_EQ(figures.sent_over_array, 1.5);
}

TEST(CollectiveSummaryTest, TheBusCountsWhatARingSends) {
  const CollectiveMeasurement measured = {.bytes = 1000, .seconds = {1e-6}};
  const auto bus = [&](Collective collective) {
    return FiguresOf({.ranks = 2, .collective = collective}, measured).bus_bytes_per_second;
  };

  EXPECT_DOUBLE_EQ(bus(Collective::kAllGather), 0.5e9);
  EXPECT_DOUBLE_EQ(bus(Collective::kReduceScatter), 0.5e9);
  EXPECT_DOUBLE_EQ(bus(Collective::kBroadcast), 1e9);
}

TEST(CollectiveSummaryTest, ListsAreRead) {
  EXPECT_THAT(*ParseByteList("4,1K,2Mi"), ElementsAre(4U, 1000U, 2U << 20));
  EXPECT_THAT(*ParseAlgorithms("ring,auto"), ElementsAre(Algorithm::kRing, Algorithm::kAuto));
  EXPECT_EQ(ParseAlgorithms("all")->size(), 8U);
  EXPECT_FALSE(ParseByteList("4,").ok());
  EXPECT_EQ(ParsePlaces("")->size(), 0U);
  EXPECT_EQ(ParsePlaces("a=10.0.0.1,b=10.0.0.2")->at(1).address, "10.0.0.2");
  for (const char* wrong : {"a", "a=", "=10.0.0.1", "a=host", "a=10.0.0.1,"})
    EXPECT_FALSE(ParsePlaces(wrong).ok()) << wrong;
  EXPECT_FALSE(ParseAlgorithms("ring,").ok());
}

}  // namespace
}  // namespace pushpull
