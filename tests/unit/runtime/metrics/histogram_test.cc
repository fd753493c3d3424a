// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/histogram.h"

#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(HistogramTest, ABoundIsInItsBucket) {
  Histogram histogram({1, 2, 4});
  for (const double value : {0.5, 1.0, 1.5, 2.0, 4.0, 4.5, 100.0}) histogram.Observe(value);

  const HistogramState state = histogram.State();
  EXPECT_THAT(state.cumulative, ElementsAre(2, 4, 5));
  EXPECT_EQ(state.count, 7);
  EXPECT_DOUBLE_EQ(state.sum, 113.5);
}

TEST(HistogramTest, PowersOfTheBaseEndTheirNativeBuckets) {
  EXPECT_EQ(NativeBuckets::IndexOf(1), 0);
  EXPECT_EQ(NativeBuckets::IndexOf(std::nextafter(1, 2)), 1);
  EXPECT_EQ(NativeBuckets::IndexOf(2), 8);
  EXPECT_EQ(NativeBuckets::IndexOf(0.5), -8);
}

TEST(HistogramTest, EachNativeBucketHoldsItsValues) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-19.9, 16.9);
  const double base = std::exp2(std::exp2(-NativeBuckets::kSchema));
  for (int i = 0; i < 10'000; ++i) {
    const double value = std::exp2(exponent(random));
    const int index = NativeBuckets::IndexOf(value);
    EXPECT_LE(value, std::pow(base, index) * (1 + 1e-12)) << value;
    EXPECT_GT(value, std::pow(base, index - 1) * (1 - 1e-12)) << value;
  }
}

TEST(HistogramTest, WhatNoNativeBucketHoldsIsCountedAtTheEnds) {
  Histogram histogram({1});
  for (const double value : {0.0, -1.0, NativeBuckets::kZeroThreshold}) histogram.Observe(value);
  for (const double value : {1e300, std::numeric_limits<double>::infinity()})
    histogram.Observe(value);
  histogram.Observe(std::numeric_limits<double>::quiet_NaN());

  const HistogramState state = histogram.State();
  EXPECT_EQ(state.native.zeros, 3);
  EXPECT_THAT(state.native.counts, ElementsAre(Pair(NativeBuckets::kLast, 2)));
  EXPECT_EQ(state.count, 5);
}

TEST(HistogramTest, SmallestNativeBucketFollowsTheThreshold) {
  Histogram histogram({1});
  histogram.Observe(std::nextafter(NativeBuckets::kZeroThreshold, 1));
  EXPECT_THAT(histogram.State().native.counts, ElementsAre(Pair(NativeBuckets::kFirst, 1)));
}

TEST(HistogramTest, ABucketShowsItsNewestExemplar) {
  Histogram histogram({1, 2});
  histogram.Observe(0.5, 7, 100);
  histogram.Observe(0.6, 7, 101);
  histogram.Observe(3, 7, 102);
  histogram.Observe(0.7);

  const HistogramState state = histogram.State();
  ASSERT_EQ(state.exemplars.size(), 3);
  EXPECT_EQ(state.exemplars[0]->step, 101);
  EXPECT_EQ(state.exemplars[0]->value, 0.6);
  EXPECT_FALSE(state.exemplars[1]);
  EXPECT_EQ(state.exemplars[2]->trace, 7);
  EXPECT_THAT(state.cumulative, ElementsAre(3, 3));
}

TEST(HistogramTest, NoBoundCountsMoreThanTheWholeMeanwhile) {
  constexpr int kEach = 20'000;
  Histogram histogram({1, 2});
  std::vector<std::thread> observers;
  for (int i = 0; i < 3; ++i)
    observers.emplace_back([&histogram] {
      for (int j = 0; j < kEach; ++j) histogram.Observe(0.5);
    });
  uint64_t seen = 0;
  while (seen < 3 * kEach) {
    const HistogramState state = histogram.State();
    EXPECT_LE(state.cumulative.back(), state.count);
    EXPECT_LE(seen, state.count);
    seen = state.count;
  }
  for (std::thread& observer : observers) observer.join();
  EXPECT_DOUBLE_EQ(histogram.State().sum, 0.5 * 3 * kEach);
}

TEST(HistogramTest, SameLabelsAreTheSameSeries) {
  HistogramFamily family("pushpull_sync_phase_seconds", "Parts", {1});
  family.Add({{"phase", "wire"}}).Observe(0.5);
  family.Add({{"phase", "wire"}}).Observe(0.5);
  family.Add({{"phase", "sum"}});

  const std::vector<HistogramState> states = family.States();
  ASSERT_EQ(states.size(), 2);
  EXPECT_THAT(states[0].labels, ElementsAre(Pair("phase", "sum")));
  EXPECT_EQ(states[0].count, 0);
  EXPECT_EQ(states[1].count, 2);
}

}  // namespace
}  // namespace pushpull
