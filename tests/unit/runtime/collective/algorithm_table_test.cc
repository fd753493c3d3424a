// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/algorithm_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(AlgorithmTableTest, ChoosesByTheNearestMeasuredSize) {
  AlgorithmTable table(8);
  for (size_t i = 0; i < kMeasuredBytes.size(); ++i)
    table.Set(Collective::kAllReduce, i, i < 3 ? Algorithm::kTree : Algorithm::kRing);

  EXPECT_EQ(table.Choose(Collective::kAllReduce, 0), Algorithm::kTree);
  EXPECT_EQ(table.Choose(Collective::kAllReduce, 8 << 10), Algorithm::kTree);
  EXPECT_EQ(table.Choose(Collective::kAllReduce, 32'000), Algorithm::kTree);
  EXPECT_EQ(table.Choose(Collective::kAllReduce, 33'000), Algorithm::kRing);
  EXPECT_EQ(table.Choose(Collective::kAllReduce, uint64_t{1} << 40), Algorithm::kRing);
}

TEST(AlgorithmTableTest, BeforeAnythingIsMeasuredLargeArraysTakeARing) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const AlgorithmTable table(ranks);
    EXPECT_EQ(table.Choose(Collective::kAllReduce, 64 << 20), Algorithm::kRing);
    EXPECT_NE(table.Choose(Collective::kBroadcast, 4), Algorithm::kRing);
  }
}

TEST(AlgorithmTableTest, TheFastestWinsAndTheSlowDropOut) {
  const Race race = {.measured = {Algorithm::kRing, Algorithm::kTree, Algorithm::kRoot},
                     .seconds = {0.3, 0.1, 0.5}};

  EXPECT_EQ(FastestOf(race), Algorithm::kTree);
  EXPECT_THAT(WorthMeasuring(race, 4), testing::ElementsAre(Algorithm::kRing, Algorithm::kTree));
}

}  // namespace
}  // namespace pushpull
