// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/loss_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using Source = RebuiltChunk::Source;

constexpr ShardId kShardA{1};
constexpr ShardId kShardB{2};
constexpr ServerId kServer{1};

ChunkPlan FromWorker(uint64_t version, uint64_t copied) {
  return {.chunk = {.chunk = {}, .source = Source::kWorker, .version = Step{version}},
          .from = {},
          .copied = Step{copied}};
}

TEST(LossLogTest, ALossIsOverWithItsLastShard) {
  LossLog log;
  log.Begin(SteadyTime{}, kServer, {{kShardA, 2}, {kShardB, 1}}, true);
  EXPECT_TRUE(log.losses()[0].is_waiting);
  log.StopWaiting(kShardA);

  EXPECT_FALSE(
      log.OnRebuilt(SteadyTime{} + seconds(1),
                    {kShardA, {FromWorker(8, 8), FromWorker(7, 6)}},
                    {.shard = kShardA, .has_optimizer_state = true, .state_step = Step{5}}));
  const auto over = log.OnReturned(SteadyTime{} + seconds(2), kShardB);

  ASSERT_TRUE(over.has_value());
  EXPECT_EQ(*over, log.losses()[0]);
  EXPECT_TRUE(over->is_repaired);
  EXPECT_FALSE(over->is_waiting);
  EXPECT_EQ(over->chunks, 3U);
  EXPECT_EQ(over->returned, 1U);
  EXPECT_EQ(over->from_workers, 2U);
  EXPECT_EQ(over->outdated, 1U);
  EXPECT_EQ(over->lowest_version, Step{7});
  EXPECT_EQ(over->highest_version, Step{8});
  EXPECT_EQ(over->state_step, Step{5});
  EXPECT_EQ(over->seconds, 2.0);
  EXPECT_EQ(
      ToString(*over),
      "shards 1, 2 (3 chunks) lost with server-1; 1 shard back with everything; 2 values from "
      "workers; step 7 to 8; updates of 1 chunk are lost; optimizer state of the checkpoint "
      "of step 5, 3 steps of it lost; 2 s without them");
}

TEST(LossLogTest, OneShardWithoutStateMakesTheLossStateless) {
  LossLog log;
  log.Begin(SteadyTime{}, kServer, {{kShardA, 1}, {kShardB, 1}}, false);
  log.OnRebuilt(SteadyTime{},
                {kShardA, {FromWorker(8, 8)}},
                {.shard = kShardA, .has_optimizer_state = true, .state_step = Step{5}});

  const auto over = log.OnRebuilt(
      SteadyTime{}, {kShardB, {FromWorker(8, 8)}}, {.shard = kShardB, .has_optimizer_state = true});

  EXPECT_EQ(over->state_step, std::nullopt);
}

TEST(LossLogTest, AShardLostAgainStaysWithItsFirstLoss) {
  LossLog log;
  log.Begin(SteadyTime{}, kServer, {{kShardA, 1}}, false);

  log.Begin(SteadyTime{}, ServerId{2}, {{kShardA, 1}, {kShardB, 4}}, false);

  ASSERT_EQ(log.losses().size(), 2U);
  EXPECT_THAT(log.losses()[0].servers, ElementsAre(kServer, ServerId{2}));
  EXPECT_THAT(log.losses()[1].shards, ElementsAre(kShardB));
  EXPECT_EQ(log.losses()[1].chunks, 4U);
}

}  // namespace
}  // namespace pushpull
