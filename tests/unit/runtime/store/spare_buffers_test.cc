// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/spare_buffers.h"

#include <array>

#include <gtest/gtest.h>

#include "runtime/store/chunk_state.h"

namespace pushpull {
namespace {

TEST(SpareBuffersTest, WhatWasPreparedIsGivenOutOnce) {
  SpareBuffers spares;
  ASSERT_TRUE(spares.Prepare(std::array<uint64_t, 1>{4096}).ok());

  HostBuffer prepared = *spares.Take(4096);
  HostBuffer fresh = *spares.Take(4096);

  EXPECT_EQ(prepared.num_bytes(), 4096U);
  EXPECT_EQ(fresh.num_bytes(), 4096U);
  EXPECT_NE(prepared.bytes().data(), fresh.bytes().data());
}

TEST(SpareBuffersTest, BuffersThatAreThereCountForTheNextPreparation) {
  SpareBuffers spares;
  ASSERT_TRUE(spares.Prepare(std::array<uint64_t, 2>{64, 4096}).ok());
  const HostBuffer taken = *spares.Take(64);

  ASSERT_TRUE(spares.Prepare(std::array<uint64_t, 2>{64, 4096}).ok());

  EXPECT_EQ(spares.Take(64)->num_bytes(), 64U);
  EXPECT_EQ(spares.Take(4096)->num_bytes(), 4096U);
}

TEST(SpareBuffersTest, AnEmptyStateNeedsNoMemory) {
  SpareBuffers spares;

  EXPECT_TRUE(spares.Prepare(std::array<uint64_t, 1>{0}).ok());
  EXPECT_EQ(spares.Take(0)->num_bytes(), 0U);
}

TEST(SpareBuffersTest, AnApplyThatUsesThemLeavesWhatWasCapturedAsItWas) {
  const OptimizerSpec optimizer{.kind = OptimizerKind::kAdam, .learning_rate = 0.1};
  SpareBuffers spares;
  ChunkState chunk(optimizer, 16);
  ChunkState other(optimizer, 16);
  ASSERT_TRUE(chunk.Install(*HostBuffer::Zeroed(16)).ok());
  ASSERT_TRUE(other.Install(*HostBuffer::Zeroed(16)).ok());
  const std::array<float, 4> gradient{1, 2, 3, 4};
  const auto value = chunk.value();
  const auto state = chunk.optimizer_state();
  ASSERT_TRUE(spares.Prepare(std::array<uint64_t, 2>{16, 32}).ok());

  chunk.BeginCapture(spares);
  ASSERT_TRUE(chunk.Apply(gradient, 1, 0).ok());
  ASSERT_TRUE(other.Apply(gradient, 1, 0).ok());

  EXPECT_EQ(value->floats()[0], 0);
  EXPECT_EQ(state->floats()[0], 0);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(chunk.value()->floats()[i], other.value()->floats()[i]);
}

TEST(SpareBuffersTest, AfterTheCaptureAnApplyIsInPlaceAgain) {
  const OptimizerSpec optimizer{.kind = OptimizerKind::kSgd, .learning_rate = 0.1};
  SpareBuffers spares;
  ChunkState chunk(optimizer, 16);
  ASSERT_TRUE(chunk.Install(*HostBuffer::Zeroed(16)).ok());
  const std::array<float, 4> gradient{1, 2, 3, 4};
  const std::byte* memory = chunk.value()->bytes().data();

  chunk.BeginCapture(spares);
  chunk.EndCapture();
  ASSERT_TRUE(chunk.Apply(gradient, 1, 0).ok());

  EXPECT_EQ(chunk.value()->bytes().data(), memory);
}

}  // namespace
}  // namespace pushpull
