// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/row_rules.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/coordinator/tensor_catalog.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

TensorSpec Rows() {
  return {.name = "emb",
          .dims = {100'000, 16},
          .optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 0.1},
          .rows = RowSpec{}};
}

TEST(RowRulesTest, OnlyModesWithEverybodysPushHaveRows) {
  const std::vector<TensorSpec> rows = {{.name = "w", .dims = {1}}, Rows()};
  const std::vector<TensorSpec> dense = {{.name = "w", .dims = {1}}};
  const std::pair<Consistency, std::string> cases[] = {
      {{.mode = SyncMode::kAsync}, "spec.sync.mode Sync, which is Async"},
      {{.mode = SyncMode::kBounded, .staleness = 2}, "spec.sync.mode Sync, which is Bounded"},
      {{.backup_workers = 1}, "spec.sync.backupWorkers 0, which is 1"},
      {{.gated = true}, "spec.sync.gated false"},
  };
  for (const auto& [consistency, text] : cases) {
    const absl::Status status = CheckRowMode(rows, consistency);

    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("\"emb\""), HasSubstr(text)));
    EXPECT_TRUE(CheckRowMode(dense, consistency).ok()) << text;
  }
  EXPECT_TRUE(CheckRowMode(rows, {}).ok());
}

TEST(RowRulesTest, RowsArePlacedByTheirNumber) {
  TensorCatalog catalog;
  catalog.SetServers(std::vector<ServerId>(kShardCount, ServerId{0}), {1});

  ASSERT_TRUE(catalog.Register(WorkerId{0}, std::vector{Rows()}).ok());

  EXPECT_THAT(catalog.tensors().front().shards, SizeIs(14));
}

TEST(RowRulesTest, WorkersMustAgreeInTheirRows) {
  TensorCatalog catalog;
  catalog.SetServers(std::vector<ServerId>(kShardCount, ServerId{0}), {1});
  ASSERT_TRUE(catalog.Register(WorkerId{0}, std::vector{Rows()}).ok());
  TensorSpec dense = Rows();
  dense.rows.reset();
  TensorSpec evicting = Rows();
  evicting.rows->evict_after = 5;

  EXPECT_THAT(std::string(catalog.Register(WorkerId{1}, std::vector{dense}).message()),
              HasSubstr("dense and row-sparse"));
  EXPECT_THAT(std::string(catalog.Register(WorkerId{1}, std::vector{evicting}).message()),
              HasSubstr("evict_after"));
  EXPECT_TRUE(catalog.Register(WorkerId{1}, std::vector{Rows()}).ok());
}

TEST(RowRulesTest, ATensorThatCannotHaveRowsIsRefused) {
  TensorCatalog catalog;
  catalog.SetServers(std::vector<ServerId>(kShardCount, ServerId{0}), {1});
  TensorSpec encoded = Rows();
  encoded.codec = Codec::kInt8;

  const absl::Status status = catalog.Register(WorkerId{0}, std::vector{encoded});

  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor \"emb\", row-sparse: needs codec"));
}

}  // namespace
}  // namespace pushpull
