// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/row_table.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/store/chunk_state.h"
#include "runtime/store/row_layout.h"
#include "tests/unit/runtime/store/sparse_rows_of.h"

namespace pushpull {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;

constexpr size_t kDim = 3;

TensorSpec Spec(OptimizerSpec optimizer, RowSpec rows = {}) {
  return {.name = "emb", .dims = {1000, kDim}, .optimizer = optimizer, .rows = rows};
}

const OptimizerSpec kSgd{.kind = OptimizerKind::kSgd, .learning_rate = 0.5};
const OptimizerSpec kAdam{.kind = OptimizerKind::kAdam, .learning_rate = 0.01};

std::vector<float> Row(const ChunkState& state, uint64_t key) {
  std::vector<float> row(kDim);
  state.rows()->Gather(std::vector{key}, row);
  return row;
}

absl::Status Push(ChunkState& state, const RowsByKey& gradient) {
  const HostBuffer rows = EncodeRows(gradient, kDim);
  return state.ApplyRows(rows.bytes(), 1, 0);
}

ChunkState Installed(const TensorSpec& spec, const RowsByKey& rows = {}) {
  ChunkState state(spec, 0, 1);
  const HostBuffer bytes = EncodeRows(rows, kDim);
  EXPECT_TRUE(state.InstallRows(bytes.bytes()).ok());
  return state;
}

std::vector<std::byte> ImageOf(const ChunkState& state) {
  const ChunkImage image = *state.Image();
  std::vector<std::byte> bytes(image.value->bytes().begin(), image.value->bytes().end());
  bytes.insert(bytes.end(), image.state->bytes().begin(), image.state->bytes().end());
  return bytes;
}

TEST(RowTableTest, OnlyRowsOfTheGradientChange) {
  const TensorSpec spec = Spec(kSgd);
  ChunkState state = Installed(spec, {{3, {1, 1, 1}}, {8, {2, 2, 2}}});

  ASSERT_TRUE(Push(state, {{3, {2, 4, 6}}, {70, {2, 2, 2}}}).ok());

  EXPECT_THAT(Row(state, 3), ElementsAre(0, -1, -2));
  EXPECT_THAT(Row(state, 8), Each(2));
  EXPECT_THAT(Row(state, 70), Each(-1));
  EXPECT_THAT(Row(state, 71), Each(0));
  EXPECT_EQ(state.rows()->num_rows(), 3);
  EXPECT_EQ(state.version(), Step{1});
}

// As one dense chunk of the same rows, of which every step touches all.
TEST(RowTableTest, EveryOptimizerDoesWhatItDoesToDenseValues) {
  const OptimizerSpec optimizers[] = {
      kSgd,
      {.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 0.9, .nesterov = true},
      {.kind = OptimizerKind::kAdagrad, .learning_rate = 0.1, .epsilon = 1e-10},
      // Of a larger epsilon SparseAdam makes something else.
      {.kind = OptimizerKind::kAdam, .learning_rate = 0.01, .epsilon = 1e-15},
      {.kind = OptimizerKind::kAdamW,
       .learning_rate = 0.01,
       .weight_decay = 0.1,
       .epsilon = 1e-15}};
  for (const OptimizerSpec& optimizer : optimizers) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const TensorSpec spec = Spec(optimizer);
    ChunkState rows = Installed(spec);
    ChunkState dense(spec.optimizer, 5 * kDim * sizeof(float));
    ASSERT_TRUE(dense.Install(*HostBuffer::Zeroed(dense.num_bytes())).ok());
    for (int step = 0; step < 20; ++step) {
      RowsByKey gradient;
      std::vector<float> whole;
      for (uint64_t key = 0; key < 5; ++key) {
        for (size_t i = 0; i < kDim; ++i) gradient[key].push_back(normal(random));
        whole.insert(whole.end(), gradient[key].begin(), gradient[key].end());
      }
      ASSERT_TRUE(Push(rows, gradient).ok());
      ASSERT_TRUE(dense.Apply(whole, 1, 0).ok());
    }
    for (uint64_t key = 0; key < 5; ++key) {
      for (size_t i = 0; i < kDim; ++i)
        EXPECT_NEAR(Row(rows, key)[i], dense.value()->floats()[key * kDim + i], 1e-6);
    }
  }
}

// torch.optim.SparseAdam: the step counts for the whole tensor, and epsilon is not corrected.
TEST(RowTableTest, AdamIsThatOfSparseAdam) {
  OptimizerSpec optimizer = kAdam;
  optimizer.epsilon = 0.1;
  const TensorSpec spec = Spec(optimizer);
  ChunkState state = Installed(spec);
  ASSERT_TRUE(Push(state, {}).ok());

  ASSERT_TRUE(Push(state, {{5, {1, 2, -4}}}).ok());

  for (const auto& [i, g] : {std::pair{0, 1.0}, {1, 2.0}, {2, -4.0}}) {
    const double m = 0.1 * g;
    const double v = 0.001 * g * g;
    const double rate = 0.01 * std::sqrt(1 - 0.999 * 0.999) / (1 - 0.9 * 0.9);
    EXPECT_NEAR(Row(state, 5)[static_cast<size_t>(i)], -rate * m / (std::sqrt(v) + 0.1), 1e-7);
  }
}

TEST(RowTableTest, NewRowsDependOnSeedAndKeyAlone) {
  const TensorSpec uniform = Spec(kSgd, {.init = RowInit::kUniform, .scale = 0.5, .seed = 3});
  const TensorSpec other = Spec(kSgd, {.init = RowInit::kUniform, .scale = 0.5, .seed = 4});
  const ChunkState one = Installed(uniform);
  const ChunkState two = Installed(uniform);

  EXPECT_EQ(Row(one, 17), Row(two, 17));
  EXPECT_NE(Row(one, 17), Row(one, 18));
  EXPECT_NE(Row(one, 17), Row(Installed(other), 17));
  EXPECT_EQ(one.rows()->num_rows(), 0);
}

TEST(RowTableTest, DrawnRowsHaveMeanAndSpread) {
  for (const auto& [init, variance] :
       {std::pair{RowInit::kUniform, 4.0 / 3}, {RowInit::kNormal, 4.0}}) {
    double sum = 0;
    double squares = 0;
    std::vector<float> row(10);
    for (uint64_t key = 0; key < 10'000; ++key) {
      InitializeRow({.init = init, .scale = 2, .seed = 1}, key, row);
      for (const float value : row) {
        sum += value;
        squares += value * value;
      }
    }
    EXPECT_NEAR(sum / 1e5, 0, 0.03);
    EXPECT_NEAR(squares / 1e5, variance, 0.05);
  }
}

TEST(RowTableTest, AnImageGivesTheSameTable) {
  const TensorSpec spec = Spec(kAdam, {.init = RowInit::kNormal, .scale = 1});
  ChunkState state = Installed(spec, {{9, {1, 2, 3}}});
  for (const uint64_t key : {40, 2, 9, 30})
    ASSERT_TRUE(Push(state, {{key, {1, 1, 1}}, {key + 1, {2, 2, 2}}}).ok());
  ChunkState copy(spec, 0, 1);
  const ChunkImage image = *state.Image();
  const auto clone = [](const HostBuffer& from) {
    HostBuffer to = *HostBuffer::Uninitialized(from.num_bytes());
    std::ranges::copy(from.bytes(), to.bytes().begin());
    return to;
  };

  ASSERT_EQ(*copy.rows()->ImageBytes(image.value->bytes()), image.state->num_bytes());
  ASSERT_TRUE(
      copy.Restore(state.version(), state.updates(), clone(*image.value), clone(*image.state))
          .ok());

  EXPECT_EQ(ImageOf(copy), ImageOf(state));
  ASSERT_TRUE(Push(copy, {{2, {3, 3, 3}}}).ok());
  ASSERT_TRUE(Push(state, {{2, {3, 3, 3}}}).ok());
  EXPECT_EQ(ImageOf(copy), ImageOf(state));
}

TEST(RowTableTest, ADamagedImageChangesNothing) {
  const TensorSpec spec = Spec(kAdam);
  ChunkState state = Installed(spec, {{1, {1, 1, 1}}, {2, {2, 2, 2}}});
  RowTable table(spec, 0, 1);
  const ChunkImage image = *state.Image();
  const std::vector<std::byte> rows(image.state->bytes().begin(), image.state->bytes().end());
  ASSERT_TRUE(table.Restore(image.value->bytes(), rows).ok());
  std::vector<std::byte> twice = rows;
  twice[0] = std::byte{2};  // the first key: both are 2

  EXPECT_TRUE(absl::IsDataLoss(table.Restore(image.value->bytes(), twice)));
  EXPECT_TRUE(absl::IsDataLoss(
      table.Restore(image.value->bytes(), std::span(rows).first(rows.size() - 1))));
  EXPECT_TRUE(absl::IsDataLoss(table.Restore(image.value->bytes().first(8), rows)));
  EXPECT_TRUE(absl::IsDataLoss(RowTable(spec, 1, 1000).Restore(image.value->bytes(), rows)));
  EXPECT_EQ(table.num_rows(), 2);
}

TEST(RowTableTest, RowsThatNoStepTouchesAreEvicted) {
  const TensorSpec spec =
      Spec(kSgd, {.init = RowInit::kUniform, .scale = 1, .seed = 5, .evict_after = 3});
  ChunkState state = Installed(spec);
  ASSERT_TRUE(Push(state, {{1, {1, 1, 1}}, {2, {1, 1, 1}}}).ok());
  const std::vector<float> fresh = Row(Installed(spec), 1);
  ASSERT_TRUE(Push(state, {{2, {1, 1, 1}}}).ok());
  ASSERT_TRUE(state.Skip().ok());
  EXPECT_NE(Row(state, 1), fresh);

  ASSERT_TRUE(Push(state, {}).ok());

  EXPECT_EQ(Row(state, 1), fresh);
  EXPECT_EQ(state.rows()->num_rows(), 1);
  ASSERT_TRUE(state.Skip().ok());
  EXPECT_EQ(state.rows()->num_rows(), 0);
}

// A reference that keeps every row for itself, under random pushes with evictions.
TEST(RowTableTest, ManyPushesAgreeWithAReference) {
  for (const uint64_t seed : {1, 2, 3}) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    const TensorSpec spec =
        Spec(kSgd, {.init = RowInit::kUniform, .scale = 1, .seed = seed, .evict_after = 16});
    ChunkState state = Installed(spec);
    RowsByKey values;
    std::map<uint64_t, uint64_t> touched;
    for (uint64_t version = 1; version <= 200; ++version) {
      RowsByKey gradient;
      for (uint64_t i = random() % 6; i > 0; --i) gradient[random() % 60] = {1, 2, 3};
      ASSERT_TRUE(Push(state, gradient).ok());
      for (const auto& [key, row] : gradient) {
        std::vector<float>& value = values[key];
        if (value.empty()) {
          value.resize(kDim);
          InitializeRow(*spec.rows, key, value);
        }
        for (size_t i = 0; i < kDim; ++i) value[i] -= 0.5F * row[i];
        touched[key] = version;
      }
      if (version % 2 == 0) {
        std::erase_if(values, [&](const auto& row) { return version - touched[row.first] >= 16; });
      }
      ASSERT_EQ(state.rows()->num_rows(), values.size());
    }
    for (const auto& [key, value] : values) EXPECT_EQ(Row(state, key), value);
  }
}

TEST(RowTableTest, MoreRowsThanAChunkHoldsAreRefused) {
  const TensorSpec spec = Spec(kSgd);
  ChunkState state = Installed(spec);
  RowsByKey most;
  for (uint64_t key = 0; key < RowsPerChunkMax(kDim); ++key) most[key] = {1, 1, 1};
  ASSERT_TRUE(Push(state, most).ok());

  const absl::Status one_more = Push(state, {{1'000'000, {1, 1, 1}}});

  EXPECT_TRUE(absl::IsResourceExhausted(one_more));
  EXPECT_THAT(one_more.message(), HasSubstr("\"emb\""));
  EXPECT_THAT(one_more.message(), HasSubstr("register it with more rows than 1000"));
  EXPECT_EQ(state.version(), Step{1});
  EXPECT_TRUE(Push(state, {{0, {1, 1, 1}}}).ok());
}

TEST(RowTableTest, ForeignAndUnorderedKeysAreRefused) {
  const TensorSpec spec = Spec(kSgd);
  const RowTable table(spec, 1, 7);
  const std::vector<uint64_t> falling = {5, 4};
  const std::vector<uint64_t> twice = {5, 5};
  uint64_t elsewhere = 0;
  while (ChunkOfRow(elsewhere, 7) == 1) ++elsewhere;

  EXPECT_TRUE(absl::IsInvalidArgument(table.CheckKeys(std::vector{elsewhere})));
  EXPECT_FALSE(ParseRowKeys(std::as_bytes(std::span(falling))).ok());
  EXPECT_FALSE(ParseRowKeys(std::as_bytes(std::span(twice))).ok());
  EXPECT_FALSE(ParseRowKeys(std::as_bytes(std::span(twice)).first(12)).ok());
  EXPECT_FALSE(ParseSparseRows(std::as_bytes(std::span(falling)), kDim).ok());
}

}  // namespace
}  // namespace pushpull
