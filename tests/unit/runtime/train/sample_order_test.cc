// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/sample_order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;

TEST(SampleOrderTest, EveryEpochIsAPermutation) {
  for (const uint32_t num_samples : {1U, 2U, 3U, 1000U}) {
    const OrderSpec spec{.num_samples = num_samples, .seed = 3};
    std::vector<uint32_t> all(num_samples);
    std::iota(all.begin(), all.end(), 0U);

    for (uint64_t epoch = 0; epoch < 5; ++epoch) {
      std::vector<uint32_t> order = OrderOfEpoch(spec, epoch);
      std::ranges::sort(order);

      EXPECT_EQ(order, all);
    }
  }
}

TEST(SampleOrderTest, OrderNeverChanges) {
  // Computed by a second implementation, in Python, with unbounded integers.
  EXPECT_THAT(OrderOfEpoch({.num_samples = 10}, 0), ElementsAre(4, 9, 2, 5, 1, 7, 6, 0, 3, 8));
  EXPECT_THAT(OrderOfEpoch({.num_samples = 10}, 1), ElementsAre(9, 4, 0, 5, 2, 1, 6, 8, 3, 7));
  EXPECT_THAT(OrderOfEpoch({.num_samples = 10, .seed = 42}, 0),
              ElementsAre(0, 3, 5, 7, 9, 8, 2, 1, 4, 6));
  const std::vector<uint32_t> order = OrderOfEpoch({.num_samples = 60'000, .seed = 7}, 3);
  EXPECT_THAT(std::vector<uint32_t>(order.begin(), order.begin() + 5),
              ElementsAre(38863, 2506, 1883, 27738, 48698));
}

TEST(SampleOrderTest, EpochsAndSeedsGiveDifferentOrders) {
  const OrderSpec spec{.num_samples = 1000, .seed = 3};
  OrderSpec next_seed = spec;
  next_seed.seed = 4;

  EXPECT_NE(OrderOfEpoch(spec, 0), OrderOfEpoch(spec, 1));
  EXPECT_NE(OrderOfEpoch(spec, 0), OrderOfEpoch(next_seed, 0));
  EXPECT_NE(OrderOfEpoch(spec, 1), OrderOfEpoch(next_seed, 0));
}

TEST(SampleOrderTest, AllPermutationsAreEquallyLikely) {
  constexpr int kEpochs = 24'000;
  const OrderSpec spec{.num_samples = 4, .seed = 11};
  std::map<std::vector<uint32_t>, int> counts;

  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) ++counts[OrderOfEpoch(spec, epoch)];

  ASSERT_EQ(counts.size(), 24U);
  double chi_squared = 0;
  for (const auto& [order, count] : counts)
    chi_squared += (count - 1000.0) * (count - 1000.0) / 1000;
  EXPECT_LT(chi_squared, 49.7);  // 23 degrees of freedom, one in a thousand is above
}

}  // namespace
}  // namespace pushpull
