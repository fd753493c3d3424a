// SPDX-License-Identifier: Apache-2.0
#include "runtime/shard/rebalance.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr ServerId kA{0};
constexpr ServerId kB{1};
constexpr ServerId kC{2};
constexpr ServerId kD{3};

std::vector<TargetServer> Servers(uint32_t count) {
  std::vector<TargetServer> targets;
  for (uint32_t i = 0; i < count; ++i) targets.push_back({ServerId{i}});
  return targets;
}

// Shards of `bytes`, shard i on server i % servers.
std::vector<ShardHolders> Dealt(size_t count, uint32_t servers, uint64_t bytes = 100) {
  std::vector<ShardHolders> shards;
  for (size_t i = 0; i < count; ++i) {
    shards.push_back({bytes, ServerId{static_cast<uint32_t>(i % servers)}});
  }
  return shards;
}

double Total(const std::vector<ShardHolders>& shards) {
  double bytes = 0;
  for (const ShardHolders& shard : shards) bytes += static_cast<double>(shard.bytes);
  return bytes;
}

double MovedBytes(const std::vector<ShardHolders>& shards, const std::vector<ServerId>& plan) {
  double bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto& members = shards[i].members;
    const bool is_held = shards[i].primary == plan[i] ||
                         std::find(members.begin(), members.end(), plan[i]) != members.end();
    if (!is_held) bytes += static_cast<double>(shards[i].bytes);
  }
  return bytes;
}

// Heaviest over mean, in bytes per weight.
double Imbalance(const std::vector<ShardHolders>& shards,
                 const std::vector<ServerId>& plan,
                 const std::vector<TargetServer>& targets) {
  std::map<ServerId, double> bytes;
  double weight = 0;
  for (size_t i = 0; i < plan.size(); ++i) bytes[plan[i]] += static_cast<double>(shards[i].bytes);
  double heaviest = 0;
  for (const TargetServer& target : targets) {
    weight += target.weight;
    heaviest = std::max(heaviest, bytes[target.server] / target.weight);
  }
  return heaviest * weight / Total(shards);
}

// What nobody can do better with shards of one size: they are given out one by one, each to whom it
// makes least heavy.
double BestImbalance(size_t count, const std::vector<TargetServer>& targets) {
  std::vector<double> held(targets.size(), 0);
  double heaviest = 0;
  double weight = 0;
  for (const TargetServer& target : targets) weight += target.weight;
  for (size_t shard = 0; shard < count; ++shard) {
    size_t lightest = 0;
    for (size_t i = 1; i < targets.size(); ++i) {
      if ((held[i] + 1) / targets[i].weight < (held[lightest] + 1) / targets[lightest].weight) {
        lightest = i;
      }
    }
    held[lightest] += 1;
    heaviest = std::max(heaviest, held[lightest] / targets[lightest].weight);
  }
  return heaviest * weight / static_cast<double>(count);
}

TEST(PlanPrimariesTest, APlacementThatIsBalancedEnoughStays) {
  std::vector<ShardHolders> shards = Dealt(100, 2);
  shards[0].primary = kB;
  shards[2].primary = kB;  // 48 and 52

  const std::vector<ServerId> plan = PlanPrimaries(shards, Servers(2));

  EXPECT_EQ(MovedBytes(shards, plan), 0);
}

TEST(PlanPrimariesTest, OnlyTheShardsOfALeavingServerMove) {
  const std::vector<ShardHolders> shards = Dealt(120, 4);

  const std::vector<ServerId> plan = PlanPrimaries(shards, Servers(3));

  EXPECT_EQ(MovedBytes(shards, plan), 30 * 100);
  EXPECT_LE(Imbalance(shards, plan, Servers(3)), kImbalanceMax);
}

TEST(PlanPrimariesTest, NewServersGetTheirShareAndOldOnesExchangeNothing) {
  const std::vector<ShardHolders> shards = Dealt(1000, 2);

  const std::vector<ServerId> plan = PlanPrimaries(shards, Servers(4));

  EXPECT_LE(Imbalance(shards, plan, Servers(4)), kImbalanceMax);
  EXPECT_LE(MovedBytes(shards, plan), 500 * 100);
  for (size_t i = 0; i < plan.size(); ++i) {
    EXPECT_TRUE(plan[i] == shards[i].primary || plan[i] >= kC) << "shard " << i;
  }
}

TEST(PlanPrimariesTest, FollowersTakeOverBeforeAnybodyElse) {
  std::vector<ShardHolders> shards = Dealt(90, 3);
  for (size_t i = 2; i < shards.size(); i += 3) shards[i].members = {i % 2 == 0 ? kA : kB};

  const std::vector<ServerId> plan = PlanPrimaries(shards, Servers(2));

  EXPECT_EQ(MovedBytes(shards, plan), 0);
  EXPECT_LE(Imbalance(shards, plan, Servers(2)), kImbalanceMax);
}

TEST(PlanPrimariesTest, AnOverloadedServerGivesFirstWhatOthersHoldAlready) {
  std::vector<ShardHolders> shards = Dealt(40, 1);
  for (size_t i = 20; i < 40; ++i) shards[i].members = {kB};

  const std::vector<ServerId> plan = PlanPrimaries(shards, Servers(2));

  EXPECT_EQ(MovedBytes(shards, plan), 0);
  EXPECT_LE(Imbalance(shards, plan, Servers(2)), kImbalanceMax);
}

TEST(PlanPrimariesTest, BytesFollowTheWeights) {
  const std::vector<TargetServer> targets = {{kA, 1}, {kB, 2}, {kC, 5}};

  const std::vector<ServerId> plan = PlanPrimaries(Dealt(400, 2), targets);

  EXPECT_LE(Imbalance(Dealt(400, 2), plan, targets), kImbalanceMax);
}

TEST(PlanPrimariesTest, ShardsOfUnequalSizeAreSwappedWhereMovesDoNotHelp) {
  const std::vector<ShardHolders> shards = {{3, kA}, {2, kA}, {2, kA}, {3, kB}, {2, kB}};

  const std::vector<ServerId> plan = PlanPrimaries(shards, Servers(2));

  EXPECT_EQ(Imbalance(shards, plan, Servers(2)), 1);
}

TEST(PlanPrimariesTest, AShardTooLargeForAnyServerKeepsItToItself) {
  const std::vector<ShardHolders> shards = {{900, kA}, {50, kA}, {50, kA}, {50, kA}, {50, kA}};

  const std::vector<ServerId> plan = PlanPrimaries(shards, Servers(3));

  EXPECT_EQ(plan[0], kA);
  EXPECT_EQ(std::count(plan.begin(), plan.end(), kA), 1);
}

TEST(PlanPrimariesTest, AShardWithoutPrimaryGoesToOneOfItsMembers) {
  std::vector<ShardHolders> shards = Dealt(4, 2);
  shards[3] = {100, std::nullopt, {kB}};

  const std::vector<ServerId> plan = PlanPrimaries(shards, Servers(2));

  EXPECT_EQ(plan[3], kB);
}

TEST(PlanPrimariesTest, TheOrderOfTheTargetsDoesNotMatter) {
  const std::vector<ShardHolders> shards = Dealt(101, 2, 7);
  const std::vector<TargetServer> reversed = {{kD}, {kC}, {kB}, {kA}};

  EXPECT_EQ(PlanPrimaries(shards, reversed), PlanPrimaries(shards, Servers(4)));
}

TEST(PlanPrimariesTest, ShardsWithoutBytesAndNoShardsAreFine) {
  EXPECT_THAT(PlanPrimaries(Dealt(2, 2, 0), Servers(1)), Each(kA));
  EXPECT_THAT(PlanPrimaries({}, Servers(1)), IsEmpty());
}

TEST(PlanPrimariesTest, LargeModelsAreBalancedWithTheFewestBytesMoved) {
  std::mt19937 random(5);
  std::vector<ShardHolders> shards = Dealt(1024, 3);
  for (ShardHolders& shard : shards) shard.bytes = 1'000'000 + random() % 1'000'000;

  const std::vector<ServerId> plan = PlanPrimaries(shards, Servers(5));

  EXPECT_LE(Imbalance(shards, plan, Servers(5)), kImbalanceMax);
  EXPECT_LE(MovedBytes(shards, plan), Total(shards) * 2 / 5);
}

// A cluster with a history: any number of shards, holders and weights.
struct PlacedCluster {
  std::vector<ShardHolders> shards;
  std::vector<TargetServer> targets;
  uint32_t replication = 0;
};

PlacedCluster RandomCluster(uint32_t seed, bool has_equal_sizes) {
  std::mt19937 random(seed);
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  PlacedCluster cluster;
  cluster.replication = below(3);
  const uint32_t num_servers = 1 + below(6);
  for (uint32_t i = 0; i < num_servers; ++i) {
    const double weight = seed % 2 == 0 ? 1 : 1 + below(4);
    if (i == 0 || below(4) != 0) cluster.targets.push_back({ServerId{i}, weight});
  }
  const uint32_t num_shards = 1 + below(seed % 3 == 0 ? 200 : 12);
  for (uint32_t i = 0; i < num_shards; ++i) {
    ShardHolders shard{has_equal_sizes ? 1000 : below(3000), std::nullopt};
    if (below(10) != 0) shard.primary = ServerId{below(num_servers)};
    for (uint32_t k = below(3); k > 0; --k) shard.members.emplace_back(below(num_servers));
    cluster.shards.push_back(std::move(shard));
  }
  return cluster;
}

TEST(PlanPrimariesTest, EqualShardsAreBalancedOptimally) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    const PlacedCluster cluster = RandomCluster(seed, true);

    const std::vector<ServerId> plan = PlanPrimaries(cluster.shards, cluster.targets);

    const double best = BestImbalance(cluster.shards.size(), cluster.targets);
    ASSERT_LE(Imbalance(cluster.shards, plan, cluster.targets),
              std::max(best, kImbalanceMax) + 1e-6)
        << "seed " << seed;
  }
}

TEST(PlanPrimariesTest, PlanningIsIdempotent) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    PlacedCluster cluster = RandomCluster(seed, seed % 4 < 2);
    const std::vector<ServerId> plan = PlanPrimaries(cluster.shards, cluster.targets);
    const auto followers =
        PlanFollowers(cluster.shards, plan, cluster.targets, cluster.replication);
    for (size_t i = 0; i < plan.size(); ++i) {
      cluster.shards[i].primary = plan[i];
      cluster.shards[i].members = followers[i];
    }

    ASSERT_EQ(PlanPrimaries(cluster.shards, cluster.targets), plan) << "seed " << seed;
    ASSERT_EQ(PlanFollowers(cluster.shards, plan, cluster.targets, cluster.replication), followers)
        << "seed " << seed;
  }
}

TEST(PlanFollowersTest, FollowersAreOnDistinctServersWithoutThePrimary) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    const PlacedCluster cluster = RandomCluster(seed, false);
    const std::vector<ServerId> plan = PlanPrimaries(cluster.shards, cluster.targets);

    const auto followers =
        PlanFollowers(cluster.shards, plan, cluster.targets, cluster.replication);

    for (size_t i = 0; i < plan.size(); ++i) {
      std::set<ServerId> members(followers[i].begin(), followers[i].end());
      members.insert(plan[i]);
      ASSERT_THAT(members,
                  SizeIs(std::min<size_t>(cluster.replication + 1, cluster.targets.size())))
          << "seed " << seed;
    }
  }
}

TEST(PlanFollowersTest, TheyAreSpreadByBytes) {
  const std::vector<ShardHolders> shards = Dealt(400, 4);
  const std::vector<ServerId> primaries = PlanPrimaries(shards, Servers(4));

  const auto followers = PlanFollowers(shards, primaries, Servers(4), 1);

  std::vector<ServerId> only;
  only.reserve(followers.size());
  for (const auto& list : followers) only.push_back(list.at(0));
  EXPECT_LE(Imbalance(shards, only, Servers(4)), kImbalanceMax);
}

TEST(PlanFollowersTest, ThePrimaryBeforeStaysAsFollowerWhenThatSavesACopy) {
  const std::vector<ShardHolders> shards = {{100, kA, {kB}}, {100, kB, {kA}}};

  const auto followers = PlanFollowers(shards, std::vector{kB, kA}, Servers(3), 1);

  EXPECT_THAT(followers, ElementsAre(ElementsAre(kA), ElementsAre(kB)));
}

TEST(PlanFollowersTest, MembersThatAreWellSpreadStay) {
  std::vector<ShardHolders> shards = Dealt(300, 3);
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].members = {ServerId{static_cast<uint32_t>((i + 1) % 3)}};
  }
  const std::vector<ServerId> primaries = PlanPrimaries(shards, Servers(3));

  const auto followers = PlanFollowers(shards, primaries, Servers(3), 1);

  for (size_t i = 0; i < shards.size(); ++i) EXPECT_EQ(followers[i], shards[i].members);
}

// Racks of a replica set.
std::set<std::string> RacksOf(const std::vector<TargetServer>& targets,
                              ServerId primary,
                              const std::vector<ServerId>& followers) {
  std::set<std::string> racks;
  for (const TargetServer& target : targets) {
    const bool is_follower =
        std::find(followers.begin(), followers.end(), target.server) != followers.end();
    if (target.server == primary || is_follower) racks.insert(target.rack);
  }
  return racks;
}

TEST(PlanFollowersTest, ReplicasAreInDifferentRacks) {
  const std::vector<TargetServer> targets = {
      {kA, 1, "r1"}, {kB, 1, "r1"}, {kC, 1, "r2"}, {kD, 1, "r2"}};
  std::vector<ShardHolders> shards = Dealt(400, 4);
  // A follower in the rack of the primary does not stay.
  for (ShardHolders& shard : shards) shard.members = {kB};

  const std::vector<ServerId> primaries = PlanPrimaries(shards, targets);
  const auto followers = PlanFollowers(shards, primaries, targets, 1);

  std::vector<ServerId> only;
  for (size_t i = 0; i < shards.size(); ++i) {
    only.push_back(followers[i].at(0));
    EXPECT_THAT(RacksOf(targets, primaries[i], followers[i]), SizeIs(2));
  }
  EXPECT_LE(Imbalance(shards, only, targets), kImbalanceMax);
}

TEST(PlanFollowersTest, ReplicasAreInAsManyRacksAsThereAre) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    PlacedCluster cluster = RandomCluster(seed, seed % 4 < 2);
    std::mt19937 random(seed);
    std::set<std::string> racks;
    for (TargetServer& target : cluster.targets) {
      target.rack = "r" + std::to_string(random() % (1 + seed % 4));
      racks.insert(target.rack);
    }

    const std::vector<ServerId> plan = PlanPrimaries(cluster.shards, cluster.targets);
    const auto followers =
        PlanFollowers(cluster.shards, plan, cluster.targets, cluster.replication);

    const size_t copies = std::min<size_t>(cluster.replication + 1, cluster.targets.size());
    for (size_t i = 0; i < plan.size(); ++i) {
      const std::set<ServerId> members(followers[i].begin(), followers[i].end());
      ASSERT_EQ(members.size(), copies - 1) << "seed " << seed;
      ASSERT_FALSE(members.contains(plan[i])) << "seed " << seed;
      ASSERT_THAT(RacksOf(cluster.targets, plan[i], followers[i]),
                  SizeIs(std::min(copies, racks.size())))
          << "seed " << seed;
      cluster.shards[i].primary = plan[i];
      cluster.shards[i].members = followers[i];
    }
    ASSERT_EQ(PlanFollowers(cluster.shards, plan, cluster.targets, cluster.replication), followers)
        << "seed " << seed;
  }
}

TEST(PlanFollowersTest, ALoneServerHasNone) {
  EXPECT_THAT(PlanFollowers(Dealt(2, 1), std::vector{kA, kA}, Servers(1), 2), Each(IsEmpty()));
}

}  // namespace
}  // namespace pushpull
