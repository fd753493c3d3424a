// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/quantiles.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(QuantilesTest, AnEmptyOneIsZero) {
  EXPECT_EQ(Quantiles().At(0.5), 0);
  EXPECT_EQ(Quantiles().count(), 0U);
}

TEST(QuantilesTest, AreWithinTwoPercentOfTheSortedValues) {
  std::mt19937_64 random(7);
  Quantiles quantiles;
  std::vector<double> values;
  for (int i = 0; i < 20'000; ++i) {
    // From a microsecond to about ten seconds.
    const double value = std::exp(16.0 * static_cast<double>(random() >> 11) * 0x1p-53) * 1e-6;
    values.push_back(value);
    quantiles.Add(value);
  }
  std::sort(values.begin(), values.end());

  for (const double q : {0.01, 0.25, 0.5, 0.9, 0.99, 1.0}) {
    const auto rank = static_cast<size_t>(std::ceil(q * 20'000)) - 1;
    EXPECT_NEAR(quantiles.At(q) / values[rank], 1, 0.02) << q;
  }
}

TEST(QuantilesTest, TheMeanIsWithinOnePercent) {
  Quantiles quantiles;
  for (int i = 1; i <= 1000; ++i) quantiles.Add(i * 1e-3);

  EXPECT_NEAR(quantiles.Mean(), 0.5005, 0.005);
  EXPECT_EQ(Quantiles().Mean(), 0);
}

TEST(QuantilesTest, OneValueIsEveryQuantile) {
  Quantiles quantiles;
  quantiles.Add(0.25);

  EXPECT_NEAR(quantiles.At(0), 0.25, 0.005);
  EXPECT_NEAR(quantiles.At(1), 0.25, 0.005);
}

TEST(QuantilesTest, SinceHasTheValuesAddedLater) {
  Quantiles quantiles;
  quantiles.Add(2.0);
  quantiles.Add(0.001);
  const Quantiles earlier = quantiles;
  quantiles.Add(0.001);
  quantiles.Add(0.5);

  const Quantiles added = quantiles.Since(earlier);

  EXPECT_EQ(added.count(), 2U);
  EXPECT_NEAR(added.At(1), 0.5, 0.01);
}

TEST(QuantilesTest, MergingEqualsAddingAll) {
  Quantiles merged;
  Quantiles all;
  Quantiles other;
  for (int i = 1; i <= 1000; ++i) {
    (i % 2 == 0 ? merged : other).Add(i * 0.001);
    all.Add(i * 0.001);
  }

  merged.Merge(other);

  EXPECT_EQ(merged.count(), 1000U);
  EXPECT_EQ(merged.buckets(), all.buckets());
}

TEST(QuantilesTest, AreRestoredFromTheirBuckets) {
  Quantiles quantiles;
  for (const double value : {0.001, 0.002, 0.5}) quantiles.Add(value);

  const Quantiles copy = Quantiles::FromBuckets(quantiles.buckets());

  EXPECT_EQ(copy.count(), 3U);
  EXPECT_EQ(copy.At(0.5), quantiles.At(0.5));
}

TEST(QuantilesTest, InvalidDurationsShareOneBucket) {
  Quantiles quantiles;
  for (const double value : {0.0,
                             -1.0,
                             std::numeric_limits<double>::quiet_NaN(),
                             -std::numeric_limits<double>::infinity()}) {
    quantiles.Add(value);
  }
  EXPECT_EQ(quantiles.buckets().size(), 1U);
  EXPECT_EQ(quantiles.At(1), 0);

  quantiles.Add(std::numeric_limits<double>::infinity());
  quantiles.Add(1e300);
  EXPECT_EQ(quantiles.buckets().size(), 2U);
}

}  // namespace
}  // namespace pushpull
