// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/tensor_catalog.h"

#include <functional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/shard/placement.h"
#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

TensorSpec Spec(const std::string& name, std::vector<int64_t> dims) {
  TensorSpec spec{.name = name, .dims = std::move(dims)};
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.optimizer.learning_rate = 0.1;
  return spec;
}

class TensorCatalogTest : public testing::Test {
 protected:
  TensorCatalogTest() {
    const std::vector<double> weights = {1, 1};
    catalog_.SetServers(*AssignShards(weights), weights);
  }
  TensorCatalog catalog_;
};

TEST_F(TensorCatalogTest, GivesEachTensorItsChunksAndEachChunkAShard) {
  ASSERT_TRUE(catalog_.Register(kAnn, std::vector{Spec("a", {128, 1024}), Spec("b", {10})}).ok());

  const std::vector<PlacedTensor>& tensors = catalog_.tensors();
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].shards.size(), 2U);
  EXPECT_EQ(tensors[1].first_chunk, ChunkId{2});
  EXPECT_EQ(tensors[1].shards.size(), 1U);
}

TEST_F(TensorCatalogTest, AnotherWorkerMayNameTheSameTensorsInAnyOrder) {
  ASSERT_TRUE(catalog_.Register(kAnn, std::vector{Spec("a", {4}), Spec("b", {10})}).ok());

  EXPECT_TRUE(catalog_.Register(kBob, std::vector{Spec("b", {10}), Spec("a", {4})}).ok());
  EXPECT_EQ(catalog_.version(), 2U);
}

TEST_F(TensorCatalogTest, SaysInWhichTensorAndHowTwoWorkersDiffer) {
  ASSERT_TRUE(catalog_.Register(kAnn, std::vector{Spec("w", {4, 3})}).ok());

  const absl::Status shape = catalog_.Register(kBob, std::vector{Spec("w", {3, 4})});
  const absl::Status name = catalog_.Register(kBob, std::vector{Spec("v", {4, 3})});
  TensorSpec other = Spec("w", {4, 3});
  other.optimizer.learning_rate = 0.2;
  const absl::Status optimizer = catalog_.Register(kBob, std::vector{other});
  TensorSpec encoded = Spec("w", {4, 3});
  encoded.codec = Codec::kFloat16;
  const absl::Status codec = catalog_.Register(kBob, std::vector{encoded});

  EXPECT_EQ(shape.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      shape.message(),
      HasSubstr("tensor \"w\": worker-1 and worker-0 differ in it: shape [3, 4] and [4, 3]"));
  EXPECT_THAT(name.message(), HasSubstr("\"v\": registered by worker-1 but not by worker-0"));
  EXPECT_THAT(optimizer.message(),
              HasSubstr("optimizer sgd(learning_rate=0.2) and sgd(learning_rate=0.1)"));
  EXPECT_THAT(codec.message(), HasSubstr("codec fp16 and none"));
}

TEST_F(TensorCatalogTest, BothValuesOfEverySettingAreNamed) {
  const std::vector<std::pair<std::string, std::function<void(TensorSpec&)>>> changes = {
      {"dtype float16 and float32", [](TensorSpec& spec) { spec.dtype = DType::kFloat16; }},
      {"reduction sum and mean", [](TensorSpec& spec) { spec.reduction = Reduction::kSum; }},
      {"clip_norm 2 and 0", [](TensorSpec& spec) { spec.clip_norm = 2; }},
      {"row-sparse and dense", [](TensorSpec& spec) { spec.rows = RowSpec{}; }}};
  ASSERT_TRUE(catalog_.Register(kAnn, std::vector{Spec("w", {4, 3})}).ok());

  for (const auto& [text, change] : changes) {
    TensorSpec other = Spec("w", {4, 3});
    change(other);
    EXPECT_THAT(catalog_.Register(kBob, std::vector{other}).message(),
                HasSubstr("tensor \"w\": worker-1 and worker-0 differ in it: " + text));
  }
}

TEST_F(TensorCatalogTest, ATensorThatOneWorkerLacksIsNamed) {
  ASSERT_TRUE(catalog_.Register(kAnn, std::vector{Spec("a", {4}), Spec("b", {10})}).ok());

  EXPECT_THAT(catalog_.Register(kBob, std::vector{Spec("a", {4})}).message(),
              HasSubstr("tensor \"b\": registered by worker-0 but not by worker-1"));
  EXPECT_THAT(catalog_.Register(kBob, std::vector{Spec("a", {4}), Spec("b", {10}), Spec("c", {1})})
                  .message(),
              HasSubstr("tensor \"c\": registered by worker-1 but not by worker-0"));
}

TEST_F(TensorCatalogTest, RefusesListsThatCannotBePlaced) {
  EXPECT_THAT(catalog_.Register(kAnn, {}).message(), HasSubstr("empty"));
  EXPECT_THAT(catalog_.Register(kAnn, std::vector{Spec("w", {4}), Spec("w", {4})}).message(),
              HasSubstr("twice"));
  EXPECT_THAT(catalog_.Register(kAnn, std::vector{Spec("w", {4, 0})}).message(),
              HasSubstr("shape [4, 0]"));
  EXPECT_THAT(catalog_.Register(kAnn, std::vector{Spec("w", {-1})}).message(),
              HasSubstr("shape [-1]"));
  EXPECT_TRUE(catalog_.tensors().empty());
}

}  // namespace
}  // namespace pushpull
