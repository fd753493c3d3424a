// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/chunk.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kWhole = 256 * 1024;

TEST(ChunkTableTest, CutsATensorIntoWholeChunksAndARest) {
  ChunkTable table;

  const absl::StatusOr<ChunkRange> batch = table.Append(std::vector<uint64_t>{2 * kWhole + 12});

  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(*batch, (ChunkRange{.first = ChunkId(0), .num_chunks = 3}));
  EXPECT_EQ(table.FindChunk(ChunkId(1)),
            (ChunkLayout{.tensor = TensorId(0), .index = 1, .offset = kWhole, .bytes = kWhole}));
  EXPECT_EQ(table.FindChunk(ChunkId(2)),
            (ChunkLayout{.tensor = TensorId(0), .index = 2, .offset = 2 * kWhole, .bytes = 12}));
}

TEST(ChunkTableTest, ATensorOfWholeChunksHasNoEmptyLastOne) {
  ChunkTable table;

  const absl::StatusOr<ChunkRange> batch = table.Append(std::vector<uint64_t>{kWhole, 2 * kWhole});

  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(table.ChunkBytes(*batch), ElementsAre(kWhole, kWhole, kWhole));
}

TEST(ChunkTableTest, ALaterBatchLeavesEarlierChunksWhereTheyWere) {
  ChunkTable table;
  ASSERT_TRUE(table.Append(std::vector<uint64_t>{kWhole + 4, 8}).ok());
  const std::optional<ChunkLayout> before = table.FindChunk(ChunkId(2));

  const absl::StatusOr<ChunkRange> second = table.Append(std::vector<uint64_t>{16, kWhole + 1});

  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*second, (ChunkRange{.first = ChunkId(3), .num_chunks = 3}));
  EXPECT_THAT(table.ChunkBytes(*second), ElementsAre(16, kWhole, 1));
  EXPECT_EQ(table.FindChunk(ChunkId(2)), before);
  EXPECT_EQ(table.FindTensor(TensorId(3))->chunks.first, ChunkId(4));
  EXPECT_EQ(table.total_bytes(), 2 * kWhole + 4 + 8 + 16 + 1);
}

TEST(ChunkTableTest, OffsetsPassFourGibibytes) {
  ChunkTable table;
  const uint64_t bytes = 20 * 1024 * kWhole + 4;

  ASSERT_TRUE(table.Append(std::vector<uint64_t>{bytes}).ok());

  EXPECT_EQ(table.num_chunks(), 20 * 1024 + 1);
  EXPECT_EQ(
      table.FindChunk(ChunkId(20 * 1024)),
      (ChunkLayout{.tensor = TensorId(0), .index = 20 * 1024, .offset = bytes - 4, .bytes = 4}));
}

TEST(ChunkTableTest, ATensorWithoutBytesHasNoChunk) {
  ChunkTable table;

  const absl::StatusOr<ChunkRange> batch = table.Append(std::vector<uint64_t>{0, 4, 0, 0, 8, 0});

  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(table.num_tensors(), 6u);
  EXPECT_EQ(table.FindTensor(TensorId(3))->chunks.num_chunks, 0u);
  ASSERT_EQ(table.num_chunks(), 2u);
  EXPECT_EQ(table.FindChunk(ChunkId(0))->tensor, TensorId(1));
  EXPECT_EQ(table.FindChunk(ChunkId(1))->tensor, TensorId(4));
}

TEST(ChunkTableTest, WhatWasNeverRegisteredIsNotFound) {
  ChunkTable table;
  ASSERT_TRUE(table.Append(std::vector<uint64_t>{kWhole}).ok());

  EXPECT_EQ(table.FindChunk(ChunkId(1)), std::nullopt);
  EXPECT_EQ(table.FindChunk(ChunkId(UINT64_MAX)), std::nullopt);
  EXPECT_FALSE(table.FindTensor(TensorId(1)).has_value());
}

TEST(ChunkTableTest, ABatchAboveTheLimitChangesNothing) {
  ChunkTable table;
  ASSERT_TRUE(table.Append(std::vector<uint64_t>{kWhole}).ok());

  const absl::StatusOr<ChunkRange> too_large =
      table.Append(std::vector<uint64_t>{4, kTableBytesMax - kWhole});
  const absl::StatusOr<ChunkRange> wraps_around =
      table.Append(std::vector<uint64_t>{UINT64_MAX, 2});

  EXPECT_EQ(too_large.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(wraps_around.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table.num_tensors(), 1u);
  EXPECT_EQ(table.total_bytes(), kWhole);
}

}  // namespace
}  // namespace pushpull
