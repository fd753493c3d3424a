// SPDX-License-Identifier: Apache-2.0
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/coordinator/replica_agreement.h"
#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ShardFailoverTest : public testing::Test {
 protected:
  void Promise(ServerId server, uint64_t seq, bool is_full = true) {
    failover_.OnPromise(server, {.shard = {}, .entry = entry_, .seq = seq, .is_full = is_full});
  }
  std::optional<ReplicaSet> Elect(std::optional<ServerId> preferred = std::nullopt) {
    return failover_.Elect(
        entry_, [&](ServerId server) { return live_.contains(server); }, preferred);
  }

  const ReplicaSet entry_{{Term{1}, 5}, std::nullopt, {kA, kB}, {kC}};
  std::set<ServerId> live_{kA, kB, kC};
  ShardFailover failover_;
};

TEST_F(ShardFailoverTest, TheLongestLogWins) {
  Promise(kA, 7);
  Promise(kB, 8);
  Promise(kC, 8);

  const std::optional<ReplicaSet> next = Elect();

  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->primary, kB);
  EXPECT_THAT(next->followers, ElementsAre(kA));
  EXPECT_THAT(next->learners, ElementsAre(kC));
}

TEST_F(ShardFailoverTest, OfEqualLogsThePreferredServersWins) {
  for (const ServerId server : {kA, kB, kC}) Promise(server, 8);

  EXPECT_EQ(Elect(kB)->primary, kB);
  EXPECT_EQ(Elect(kA)->primary, kA);
}

TEST_F(ShardFailoverTest, EveryLiveMemberMustPromise) {
  Promise(kA, 7);
  Promise(kC, 7);
  EXPECT_EQ(Elect(), std::nullopt);

  live_.erase(kB);

  EXPECT_EQ(Elect()->primary, kA);
  EXPECT_THAT(Elect()->followers, IsEmpty());
}

TEST_F(ShardFailoverTest, AMemberThatIsNotFullBecomesLearner) {
  Promise(kA, 9, false);
  Promise(kB, 3);
  Promise(kC, 9);

  const std::optional<ReplicaSet> next = Elect();

  EXPECT_EQ(next->primary, kB);
  EXPECT_THAT(next->learners, ElementsAre(kA, kC));
}

TEST_F(ShardFailoverTest, WithoutAFullMemberTheShardIsLostOnce) {
  for (const ServerId server : {kA, kB, kC}) Promise(server, 9, false);

  ASSERT_TRUE(Elect().has_value());
  EXPECT_TRUE(failover_.is_lost());
  EXPECT_EQ(Elect(), std::nullopt);
}

TEST_F(ShardFailoverTest, AFullMemberThatReturnsTakesALostShard) {
  live_ = {kC};
  Promise(kC, 9);
  EXPECT_EQ(Elect()->primary, std::nullopt);

  Promise(kA, 4);

  EXPECT_EQ(Elect()->primary, kA);
}

TEST_F(ShardFailoverTest, ADeadProcessHasPromisedNothing) {
  for (const ServerId server : {kA, kB, kC}) Promise(server, 8);
  failover_.Forget(kA);

  EXPECT_FALSE(failover_.HasPromised(kA));
  EXPECT_EQ(Elect(), std::nullopt);
}

}  // namespace
}  // namespace pushpull
