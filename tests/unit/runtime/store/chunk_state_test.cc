// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/chunk_state.h"

#include <initializer_list>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/store/buffers.h"

namespace pushpull {
namespace {

using testing::ElementsAre;

OptimizerSpec Sgd(double learning_rate, double momentum = 0) {
  OptimizerSpec spec;
  spec.kind = OptimizerKind::kSgd;
  spec.learning_rate = learning_rate;
  spec.momentum = momentum;
  return spec;
}

std::vector<float> Values(const ChunkState& chunk) {
  const auto value = chunk.value();
  return {value->floats().begin(), value->floats().end()};
}

TEST(ChunkStateTest, TheFirstValueCounts) {
  const OptimizerSpec spec = Sgd(0.5);
  ChunkState chunk(spec, 8);

  ASSERT_TRUE(chunk.Install(BufferOf({1, 2})).ok());
  ASSERT_TRUE(chunk.Install(BufferOf({7, 7})).ok());

  EXPECT_THAT(Values(chunk), ElementsAre(1, 2));
  EXPECT_EQ(chunk.version(), Step{0});
}

TEST(ChunkStateTest, ApplyStepsTheOptimizerAndTheVersion) {
  const OptimizerSpec spec = Sgd(0.5);
  ChunkState chunk(spec, 8);
  ASSERT_TRUE(chunk.Install(BufferOf({1, 2})).ok());
  const std::vector<float> gradient = {2, 4};

  ASSERT_TRUE(chunk.Apply(gradient, 0.5, 0).ok());

  EXPECT_THAT(Values(chunk), ElementsAre(0.5F, 1));
  EXPECT_EQ(chunk.version(), Step{1});
}

TEST(ChunkStateTest, TheLearningRateOfTheStepTakesPrecedence) {
  const OptimizerSpec spec = Sgd(0.5);
  ChunkState chunk(spec, 4);
  ASSERT_TRUE(chunk.Install(BufferOf({1})).ok());
  const std::vector<float> gradient = {1};

  ASSERT_TRUE(chunk.Apply(gradient, 1, 0.25).ok());

  EXPECT_THAT(Values(chunk), ElementsAre(0.75F));
}

TEST(ChunkStateTest, AReaderKeepsTheVersionItHas) {
  const OptimizerSpec spec = Sgd(1);
  ChunkState chunk(spec, 4);
  ASSERT_TRUE(chunk.Install(BufferOf({5})).ok());
  const std::shared_ptr<const HostBuffer> being_sent = chunk.value();
  const std::vector<float> gradient = {1};

  ASSERT_TRUE(chunk.Apply(gradient, 1, 0).ok());

  EXPECT_EQ(being_sent->floats()[0], 5);
  EXPECT_THAT(Values(chunk), ElementsAre(4));
}

TEST(ChunkStateTest, WithoutAReaderTheValueIsWrittenInPlace) {
  const OptimizerSpec spec = Sgd(1);
  ChunkState chunk(spec, 4);
  ASSERT_TRUE(chunk.Install(BufferOf({5})).ok());
  const HostBuffer* before = chunk.value().get();
  const std::vector<float> gradient = {1};

  ASSERT_TRUE(chunk.Apply(gradient, 1, 0).ok());

  EXPECT_EQ(chunk.value().get(), before);
}

TEST(ChunkStateTest, ASkippedStepChangesTheVersionAndNothingElse) {
  const OptimizerSpec spec = Sgd(1, 0.9);
  ChunkState skipping(spec, 4);
  ChunkState plain(spec, 4);
  ASSERT_TRUE(skipping.Install(BufferOf({5})).ok());
  ASSERT_TRUE(plain.Install(BufferOf({5})).ok());
  const std::vector<float> gradient = {1};

  ASSERT_TRUE(skipping.Skip().ok());
  ASSERT_TRUE(skipping.Apply(gradient, 1, 0).ok());
  ASSERT_TRUE(plain.Apply(gradient, 1, 0).ok());

  EXPECT_EQ(skipping.version(), Step{2});
  EXPECT_EQ(Values(skipping), Values(plain));
}

TEST(ChunkStateTest, AStepWithoutAGradientRunsNoOptimizer) {
  OptimizerSpec spec = Sgd(1, 0.9);
  spec.weight_decay = 0.5;
  ChunkState chunk(spec, 4);
  ASSERT_TRUE(chunk.Install(BufferOf({5})).ok());
  const std::vector<float> gradient = {1};
  ASSERT_TRUE(chunk.Apply(gradient, 1, 0).ok());
  const std::vector<float> value = Values(chunk);
  const float momentum = chunk.optimizer_state()->floats()[0];

  ASSERT_TRUE(chunk.Skip(false).ok());

  EXPECT_EQ(Values(chunk), value);
  EXPECT_EQ(chunk.optimizer_state()->floats()[0], momentum);
  EXPECT_EQ(chunk.updates(), 1U);
  EXPECT_EQ(chunk.version(), Step{2});
}

TEST(ChunkStateTest, AStepWithoutAGradientHasZerosAsItsSum) {
  const OptimizerSpec spec{};
  ChunkState chunk(spec, 8);
  ASSERT_TRUE(chunk.Install(BufferOf({1, 2})).ok());
  std::shared_ptr<const HostBuffer> being_sent = chunk.value();

  ASSERT_TRUE(chunk.Skip(false).ok());

  EXPECT_THAT(Values(chunk), ElementsAre(0, 0));
  EXPECT_THAT(being_sent->floats(), ElementsAre(1, 2));
  EXPECT_EQ(chunk.version(), Step{1});
  EXPECT_EQ(chunk.updates(), 0U);
}

TEST(ChunkStateTest, ACapturedSumIsNotOverwrittenWithZeros) {
  const OptimizerSpec spec{};
  ChunkState chunk(spec, 8);
  ASSERT_TRUE(chunk.Install(BufferOf({1, 2})).ok());
  const std::span<const float> captured = chunk.value()->floats();
  const std::shared_ptr<const HostBuffer> kept = chunk.value();
  SpareBuffers spares;
  chunk.BeginCapture(spares);

  ASSERT_TRUE(chunk.Skip(false).ok());

  EXPECT_THAT(captured, ElementsAre(1, 2));
  EXPECT_THAT(Values(chunk), ElementsAre(0, 0));
}

TEST(ChunkStateTest, ASumBecomesTheValueWithoutACopy) {
  const OptimizerSpec spec{};
  ChunkState chunk(spec, 8);
  ASSERT_TRUE(chunk.Install(BufferOf({1, 2})).ok());
  const std::byte* const before = chunk.value()->bytes().data();
  HostBuffer sum = BufferOf({5, 6});
  const std::byte* const memory = sum.bytes().data();

  const HostBuffer returned = chunk.TakeSum(std::move(sum));

  EXPECT_EQ(chunk.value()->bytes().data(), memory);
  EXPECT_EQ(returned.bytes().data(), before);
  EXPECT_THAT(Values(chunk), ElementsAre(5, 6));
  EXPECT_EQ(chunk.version(), Step{1});
  EXPECT_EQ(chunk.updates(), 1U);
}

TEST(ChunkStateTest, AValueThatIsReadIsNotGivenAwayForASum) {
  const OptimizerSpec spec{};
  ChunkState chunk(spec, 8);
  ASSERT_TRUE(chunk.Install(BufferOf({1, 2})).ok());
  const std::shared_ptr<const HostBuffer> reader = chunk.value();

  const HostBuffer returned = chunk.TakeSum(BufferOf({5, 6}));

  EXPECT_EQ(returned.num_bytes(), 0U);
  EXPECT_THAT(reader->floats(), ElementsAre(1, 2));
}

TEST(ChunkStateTest, ACapturedValueIsNotGivenAwayForASum) {
  const OptimizerSpec spec{};
  ChunkState chunk(spec, 8);
  ASSERT_TRUE(chunk.Install(BufferOf({1, 2})).ok());
  SpareBuffers spares;
  chunk.BeginCapture(spares);

  EXPECT_EQ(chunk.TakeSum(BufferOf({5, 6})).num_bytes(), 0U);
  EXPECT_EQ(chunk.TakeSum(BufferOf({7, 8})).num_bytes(), 8U);
}

TEST(ChunkStateTest, OnlyTheSumWithAScaleOfOneIsItsGradient) {
  const OptimizerSpec sum{};
  const OptimizerSpec sgd = Sgd(0.5);

  EXPECT_TRUE(ChunkState(sum, 8).is_gradient(1));
  EXPECT_FALSE(ChunkState(sum, 8).is_gradient(0.5));
  EXPECT_FALSE(ChunkState(sgd, 8).is_gradient(1));
}

}  // namespace
}  // namespace pushpull
