// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/row_layout.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TensorSpec Rows(int64_t rows, int64_t dim) {
  return {.name = "emb",
          .dims = {rows, dim},
          .optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 0.1},
          .rows = RowSpec{}};
}

TEST(RowLayoutTest, ChunksHaveHalfOfWhatAFrameTakes) {
  EXPECT_EQ(NumRowChunks(Rows(1, 16)), 1);
  EXPECT_EQ(NumRowChunks(Rows(7281, 16)), 1);
  EXPECT_EQ(NumRowChunks(Rows(7282, 16)), 2);
  EXPECT_EQ(NumRowChunks(Rows(10'000'000, 16)), 1374);
  EXPECT_EQ(*PlacedBytes(Rows(7282, 16)), 2 * kChunkBytes);
}

TEST(RowLayoutTest, AHashLeavesNoChunkAboveItsLimit) {
  for (const auto& [rows, dim] :
       {std::pair<int64_t, int64_t>{1'000'000, 16}, {100'000, kRowDimMax}}) {
    const uint64_t num_chunks = NumRowChunks(Rows(rows, dim));
    std::vector<uint64_t> counts(num_chunks);

    for (int64_t key = 0; key < rows; ++key)
      ++counts[ChunkOfRow(static_cast<uint64_t>(key), num_chunks)];

    EXPECT_LE(*std::ranges::max_element(counts), RowsPerChunkMax(static_cast<size_t>(dim)));
  }
}

TEST(RowLayoutTest, WhatRowsCannotHaveIsNamed) {
  TensorSpec summed = Rows(10, 4);
  summed.optimizer = {.kind = OptimizerKind::kSum};
  TensorSpec clipped = Rows(10, 4);
  clipped.clip_norm = 1;
  TensorSpec encoded = Rows(10, 4);
  encoded.codec = Codec::kFloat16;
  TensorSpec smallest = Rows(10, 4);
  smallest.reduction = Reduction::kMin;
  TensorSpec drawn = Rows(10, 4);
  drawn.rows->init = RowInit::kNormal;

  EXPECT_TRUE(CheckRows(Rows(10, 4)).ok());
  EXPECT_THAT(CheckRows(summed).message(), AllOf(HasSubstr("\"emb\""), HasSubstr("optimizer")));
  EXPECT_THAT(CheckRows(clipped).message(), HasSubstr("clip_norm"));
  EXPECT_THAT(CheckRows(encoded).message(), HasSubstr("codec"));
  EXPECT_THAT(CheckRows(smallest).message(), HasSubstr("reduction"));
  EXPECT_THAT(CheckRows(drawn).message(), HasSubstr("scale"));
  EXPECT_THAT(CheckRows(Rows(10, kRowDimMax + 1)).message(), HasSubstr("2048"));
  EXPECT_THAT(CheckRows(Rows(0, 1)).message(), HasSubstr("[0, 1]"));
}

}  // namespace
}  // namespace pushpull
