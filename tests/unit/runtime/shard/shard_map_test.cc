// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/shard_map.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

Epoch At(uint64_t term, uint64_t counter) {
  return {.term = Term(term), .counter = counter};
}

TEST(ShardMapTest, NoShardIsPlacedAtFirst) {
  const ShardMap map;

  EXPECT_FALSE(map.is_placed(ShardId(0)));
  EXPECT_FALSE(map.is_placed(ShardId(kShardCount - 1)));
}

TEST(ShardMapTest, AnUpdateConcernsItsShardAlone) {
  ShardMap map;

  EXPECT_TRUE(map.Update(ShardId(7), {.epoch = At(1, 1), .primary = ServerId(2)}));

  EXPECT_EQ(map.entry(ShardId(7)).primary, ServerId(2));
  EXPECT_TRUE(map.is_placed(ShardId(7)));
  EXPECT_FALSE(map.is_placed(ShardId(6)));
}

TEST(ShardMapTest, RefusesTheSameAndLowerEpochs) {
  ShardMap map;
  const ReplicaSet held{.epoch = At(2, 5), .primary = ServerId(1), .followers = {ServerId(3)}};
  ASSERT_TRUE(map.Update(ShardId(0), held));

  EXPECT_FALSE(map.Update(ShardId(0), {.epoch = At(2, 5), .primary = ServerId(9)}));
  EXPECT_FALSE(map.Update(ShardId(0), {.epoch = At(2, 4), .primary = ServerId(9)}));
  EXPECT_FALSE(map.Update(ShardId(0), {.epoch = At(1, 99), .primary = ServerId(9)}));

  EXPECT_EQ(map.entry(ShardId(0)), held);
}

TEST(ShardMapTest, ANewTermWinsOverEveryCounterOfTheOldOne) {
  ShardMap map;
  ASSERT_TRUE(map.Update(ShardId(0), {.epoch = At(1, 1000), .primary = ServerId(1)}));

  EXPECT_TRUE(map.Update(ShardId(0), {.epoch = At(2, 0), .primary = ServerId(4)}));

  EXPECT_EQ(map.entry(ShardId(0)).primary, ServerId(4));
}

TEST(ShardMapTest, ASnapshotDoesNotFollowLaterUpdates) {
  ShardMap map;
  ASSERT_TRUE(map.Update(ShardId(3), {.epoch = At(1, 1), .primary = ServerId(0)}));

  const ShardMap snapshot = map;
  ASSERT_TRUE(map.Update(ShardId(3), {.epoch = At(1, 2), .primary = ServerId(1)}));

  EXPECT_EQ(snapshot.entry(ShardId(3)).primary, ServerId(0));
}

TEST(ShardMapTest, KnowsWhichIdsNameAShard) {
  EXPECT_TRUE(IsShard(ShardId(1023)));
  EXPECT_FALSE(IsShard(ShardId(1024)));
}

TEST(ShardMapTest, APromisedTermRejectsEntriesOfALowerTerm) {
  ShardMap map;
  map.Promise(Term{3});
  map.Promise(Term{2});

  EXPECT_FALSE(map.Update(ShardId{1}, {{Term{2}, 99}, ServerId{0}}));
  EXPECT_TRUE(map.Update(ShardId{1}, {{Term{3}, 1}, ServerId{0}}));
}

}  // namespace
}  // namespace pushpull
