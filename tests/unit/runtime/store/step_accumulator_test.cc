// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/step_accumulator.h"

#include <cstring>
#include <initializer_list>
#include <limits>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/store/buffers.h"

namespace pushpull {
namespace {

using testing::ElementsAre;

void AddTo(StepAccumulator& accumulator, std::initializer_list<float> values, double weight) {
  HostBuffer buffer = BufferOf(values);
  accumulator.Add(buffer, weight);
}

void ReceiveInto(StepAccumulator& accumulator, std::initializer_list<float> values) {
  BufferPool pool;
  const std::span<std::byte> place = *accumulator.BeginDirect(pool);
  std::memcpy(place.data(), std::data(values), place.size());
}

std::vector<float> Result(const StepAccumulator& accumulator) {
  std::vector<float> result;
  for (const float value : accumulator.sum())
    result.push_back(static_cast<float>(value * accumulator.scale()));
  return result;
}

TEST(StepAccumulatorTest, TheMeanIsWeightedBySamples) {
  StepAccumulator accumulator(Reduction::kMean, 8);
  ReceiveInto(accumulator, {1, 10});
  accumulator.FinishDirect(30);

  AddTo(accumulator, {5, 50}, 10);

  EXPECT_THAT(Result(accumulator), ElementsAre(2, 20));
}

TEST(StepAccumulatorTest, AContributionIsAddedFromWhereItLies) {
  const std::vector<float> elsewhere = {5, 50};
  StepAccumulator accumulator(Reduction::kMean, 8);
  AddTo(accumulator, {1, 10}, 30);

  accumulator.AddTo(elsewhere, 10);
  accumulator.AddTo(elsewhere, 0);

  EXPECT_THAT(Result(accumulator), ElementsAre(2, 20));
  EXPECT_THAT(elsewhere, ElementsAre(5, 50));
}

TEST(StepAccumulatorTest, AContributionOfNoSamplesHasNoPartInTheMean) {
  StepAccumulator accumulator(Reduction::kMean, 4);
  ReceiveInto(accumulator, {100});
  accumulator.FinishDirect(0);
  ASSERT_FALSE(accumulator.has_sum());

  AddTo(accumulator, {3}, 2);
  AddTo(accumulator, {100}, 0);

  EXPECT_THAT(Result(accumulator), ElementsAre(3));
}

TEST(StepAccumulatorTest, AContributionOfNothingCountsAsZeros) {
  StepAccumulator accumulator(Reduction::kMean, 8);
  accumulator.AddNothing(30);
  ReceiveInto(accumulator, {4, 40});
  accumulator.FinishDirect(10);

  accumulator.AddNothing({5, 40});

  EXPECT_THAT(Result(accumulator), ElementsAre(0.5, 5));
}

TEST(StepAccumulatorTest, NothingAloneIsNoSum) {
  StepAccumulator accumulator(Reduction::kMean, 4);

  accumulator.AddNothing(30);

  EXPECT_FALSE(accumulator.has_sum());
  EXPECT_TRUE(accumulator.is_empty());
}

TEST(StepAccumulatorTest, ClearForgetsSamplesButNotWhatIsBeingReceived) {
  StepAccumulator accumulator(Reduction::kMean, 4);
  accumulator.AddNothing(30);
  ReceiveInto(accumulator, {4});

  accumulator.Clear();

  EXPECT_TRUE(accumulator.is_receiving());
  accumulator.FinishDirect(10);
  EXPECT_THAT(Result(accumulator), ElementsAre(4));
}

TEST(StepAccumulatorTest, SumMinimumAndMaximumIgnoreWeights) {
  for (const auto& [reduction, expected] :
       {std::pair{Reduction::kSum, 6.0F}, {Reduction::kMin, 1.0F}, {Reduction::kMax, 3.0F}}) {
    StepAccumulator accumulator(reduction, 4);

    AddTo(accumulator, {2}, 7);
    AddTo(accumulator, {1}, 0);
    AddTo(accumulator, {3}, 5);

    EXPECT_THAT(Result(accumulator), ElementsAre(expected)) << ToString(reduction);
  }
}

TEST(StepAccumulatorTest, ProductAndLogicalReductionsTakeEachOnce) {
  for (const auto& [reduction, alone, all] : {std::tuple{Reduction::kProd, 4.0F, 0.0F},
                                              {Reduction::kAnd, 1.0F, 0.0F},
                                              {Reduction::kOr, 1.0F, 1.0F}}) {
    StepAccumulator accumulator(reduction, 8);

    AddTo(accumulator, {4, 0.5F}, 7);
    EXPECT_EQ(Result(accumulator)[0], alone) << ToString(reduction);
    AddTo(accumulator, {0, 3}, 1);

    EXPECT_THAT(Result(accumulator), ElementsAre(all, reduction == Reduction::kProd ? 1.5F : 1.0F))
        << ToString(reduction);
  }
}

TEST(StepAccumulatorTest, WhatWasAbandonedLeavesNoTrace) {
  StepAccumulator accumulator(Reduction::kMean, 4);
  ReceiveInto(accumulator, {100});
  accumulator.AbandonDirect();
  ASSERT_TRUE(accumulator.is_empty());

  AddTo(accumulator, {3}, 1);

  EXPECT_THAT(Result(accumulator), ElementsAre(3));
}

TEST(StepAccumulatorTest, KnowsWhenFiniteGradientsAddUpToMore) {
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum}) {
    StepAccumulator accumulator(reduction, 8);
    AddTo(accumulator, {3e38F, 1}, 1);
    EXPECT_TRUE(accumulator.is_finite());

    AddTo(accumulator, {3e38F, 1}, 1);
    EXPECT_FALSE(accumulator.is_finite()) << ToString(reduction);
    AddTo(accumulator, {-3e38F, 1}, 1);
    EXPECT_FALSE(accumulator.is_finite()) << ToString(reduction);

    accumulator.Clear();
    AddTo(accumulator, {3e38F, 1}, 1);
    EXPECT_TRUE(accumulator.is_finite());
  }
}

TEST(StepAccumulatorTest, WeightsFarApartMayOverflow) {
  StepAccumulator accumulator(Reduction::kMean, 4);
  AddTo(accumulator, {1}, 1e-300);

  AddTo(accumulator, {1}, 1);

  EXPECT_FALSE(accumulator.is_finite());
}

TEST(StepAccumulatorTest, SeesValuesThatChangedAfterTheLook) {
  for (const Reduction reduction : {Reduction::kSum, Reduction::kMin, Reduction::kMax}) {
    const std::vector<float> shared = {std::numeric_limits<float>::quiet_NaN()};
    StepAccumulator accumulator(reduction, 4);
    AddTo(accumulator, {1}, 1);

    accumulator.AddTo(shared, 1);

    EXPECT_FALSE(accumulator.is_finite()) << ToString(reduction);
  }
}

TEST(StepAccumulatorTest, EveryStepStartsAnew) {
  StepAccumulator accumulator(Reduction::kMean, 4);
  AddTo(accumulator, {3}, 1);
  AddTo(accumulator, {5}, 1);

  accumulator.Clear();
  AddTo(accumulator, {8}, 2);

  EXPECT_THAT(Result(accumulator), ElementsAre(8));
}

}  // namespace
}  // namespace pushpull
