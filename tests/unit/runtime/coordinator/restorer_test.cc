// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/restorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RestorerTest : public testing::Test {
 protected:
  RestorerTest() {
    checkpoint_.emplace();
    checkpoint_->folder = "/models/step-000000000042";
    checkpoint_->manifest = {.step = Step{42}, .sequence = 3, .tensors = {Tensor({4})}};
    checkpoint_->manifest.chunks.resize(2);
    checkpoint_->manifest.chunks[0].place.version = Step{40};
    checkpoint_->manifest.chunks[1].place.version = Step{44};
  }
  static TensorSpec Tensor(std::vector<int64_t> dims) {
    return {.name = "w", .dims = std::move(dims), .optimizer = {}};
  }
  static ReplicaChange First() {
    return {.entries = {{kShard, {{Term{1}, 1}, kA, {kB}}}}, .handovers = {}, .lost = {}};
  }

  std::optional<LoadedCheckpoint> checkpoint_;
  Restorer restorer_{checkpoint_};
};

TEST_F(RestorerTest, ACheckpointOfAnotherModelIsRejected) {
  EXPECT_TRUE(restorer_.Check(std::vector{Tensor({4})}).ok());

  EXPECT_THAT(std::string(restorer_.Check(std::vector{Tensor({5})}).message()),
              HasSubstr("step-000000000042: is a checkpoint of another model"));
}

TEST_F(RestorerTest, EveryMemberReadsTheChunksOfItsShards) {
  const auto orders = restorer_.Begin(First(), {kA, kB, ServerId{2}}, true);

  ASSERT_EQ(orders.size(), 3U);
  EXPECT_THAT(orders.at(kA).shards, ElementsAre(kShard));
  EXPECT_THAT(orders.at(kB).shards, ElementsAre(kShard));
  EXPECT_EQ(orders.at(kB).sequence, 3U);
  EXPECT_TRUE(orders.at(ServerId{2}).shards.empty());
}

TEST_F(RestorerTest, ChunksOfOneStepKeepTheirVersion) {
  EXPECT_EQ(restorer_.Begin(First(), {kA}, true).at(kA).version, std::nullopt);
}

TEST_F(RestorerTest, StepsContinueAboveEveryChunksVersion) {
  checkpoint_->manifest.versions = ChunkVersions::kOfEachChunk;

  EXPECT_EQ(restorer_.Begin(First(), {kA}, true).at(kA).version, Step{44});
  EXPECT_EQ(restorer_.Begin(First(), {kA}, false).at(kA).version, std::nullopt);
}

TEST_F(RestorerTest, FirstEntriesWaitForEveryServer) {
  restorer_.Begin(First(), {kA, kB}, true);
  restorer_.OnRestored(kA);
  EXPECT_EQ(restorer_.Finish(), std::nullopt);
  EXPECT_TRUE(restorer_.is_under_way());
  restorer_.OnRestored(kB);

  const std::optional<ReplicaChange> first = restorer_.Finish();

  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->entries.front().first, kShard);
  EXPECT_FALSE(restorer_.is_under_way());
}

TEST_F(RestorerTest, NextProcessReadsAgainWhatADeadServerHad) {
  restorer_.Begin(First(), {kA, kB}, true);
  restorer_.OnRestored(kA);
  restorer_.OnLost(kA);
  restorer_.OnRestored(kB);

  EXPECT_EQ(restorer_.Finish(), std::nullopt);
  ASSERT_NE(restorer_.Find(kA), nullptr);
  EXPECT_THAT(restorer_.Find(kA)->shards, ElementsAre(kShard));
  EXPECT_EQ(restorer_.Find(ServerId{2}), nullptr);
  restorer_.OnRestored(kA);
  EXPECT_TRUE(restorer_.Finish().has_value());
}

TEST_F(RestorerTest, SkippedStepsSurviveACheckpoint) {
  checkpoint_->manifest.system = {StepsSkippedSection({.steps_skipped = 17})};

  EXPECT_EQ(RestoredConsistency({}, *checkpoint_).steps_skipped, 17U);
}

TEST_F(RestorerTest, OfAWarmStartOnlyValuesAreRead) {
  Restorer restorer(checkpoint_, true);
  TensorSpec other_optimizer = Tensor({4});
  other_optimizer.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 0.1};
  TensorSpec head = Tensor({2});
  head.name = "head";

  EXPECT_TRUE(restorer.Check(std::vector{other_optimizer, head}).ok());
  EXPECT_FALSE(restorer.Check(std::vector{Tensor({5})}).ok());
  EXPECT_EQ(restorer.Describe(std::vector{Tensor({4}), head}),
            "beginning with the values of step 42 from /models/step-000000000042; not in it, and "
            "as the program begins them: head");
  checkpoint_->manifest.versions = ChunkVersions::kOfEachChunk;
  const Restore order = restorer.Begin(First(), {kA, kB}, true).at(kA);
  EXPECT_TRUE(order.values_only);
  EXPECT_EQ(order.version, std::nullopt);
}

}  // namespace
}  // namespace pushpull
