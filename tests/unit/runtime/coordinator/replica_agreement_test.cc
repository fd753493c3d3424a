// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/replica_agreement.h"

#include <algorithm>
#include <cstddef>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// One shard on server A, unless a test places more.
class ReplicaAgreementTest : public testing::Test {
 protected:
  void Start(const std::vector<ServerId>& servers,
             uint32_t replication,
             size_t moves_per_server = 4) {
    agreement_.emplace(ReplicaOptions{Term{3}, replication, moves_per_server, rebuilds_});
    for (const ServerId server : servers) agreement_->AddServer(server, 1);
  }
  void StartWithShardOnA(const std::vector<ServerId>& servers, uint32_t replication) {
    Start(servers, replication);
    agreement_->Place({{kShard, 100, kA}});
    ConfirmAll();
  }

  const ReplicaSet& Entry(ShardId shard = kShard) const { return agreement_->table().at(shard); }

  ReplicaChange Confirm(ServerId member, ShardId shard = kShard) {
    return agreement_->OnCaughtUp({shard, Entry(shard).epoch, member});
  }
  // The primary confirms all members of the entry in force now.
  void ConfirmAll(ShardId shard = kShard) {
    const ReplicaSet entry = Entry(shard);
    for (const auto& list : {entry.followers, entry.learners}) {
      for (const ServerId member : list) {
        agreement_->OnCaughtUp({shard, entry.epoch, member});
      }
    }
  }
  ReplicaChange PromiseFull(ServerId server, uint64_t seq, ShardId shard = kShard) {
    return agreement_->OnPromise(server, {shard, Entry(shard), seq, true});
  }
  ReplicaChange PromiseEmpty(ServerId server, ShardId shard = kShard) {
    return agreement_->OnPromise(server, {shard, Entry(shard), 0, false});
  }
  // A shard on A alone, and its handover to B, which is told to A.
  Handover StartHandoverToB() {
    StartWithShardOnA({kA, kB}, 0);
    agreement_->SetTarget({kB});
    Confirm(kB);
    return Confirm(kB).handovers.at(0).second;
  }

  bool rebuilds_ = false;
  std::optional<ReplicaAgreement> agreement_;
};

// ---- First entries ----

TEST_F(ReplicaAgreementTest, FollowersOfFirstEntriesAreOtherServers) {
  Start({kA, kB, kC}, 1);

  const ReplicaChange change = agreement_->Place({{ShardId{1}, 10, kA}, {ShardId{2}, 10, kB}});

  ASSERT_THAT(change.entries, SizeIs(2));
  EXPECT_EQ(Entry(ShardId{1}).primary, kA);
  EXPECT_THAT(Entry(ShardId{1}).followers, SizeIs(1));
  EXPECT_EQ(Entry(ShardId{2}).primary, kB);
  EXPECT_NE(Entry(ShardId{2}).followers, std::vector{kB});
  EXPECT_LT(Entry(ShardId{1}).epoch, Entry(ShardId{2}).epoch);
  EXPECT_EQ(agreement_->epoch(), Entry(ShardId{2}).epoch);
}

TEST_F(ReplicaAgreementTest, AShardIsAtRestWhenItsFollowersAreConfirmed) {
  Start({kA, kB}, 1);
  agreement_->Place({{kShard, 100, kA}});
  ASSERT_EQ(agreement_->shards_moving(), 1);

  ConfirmAll();

  EXPECT_EQ(agreement_->shards_moving(), 0);
}

TEST_F(ReplicaAgreementTest, ThereAreNoMoreFollowersThanOtherServers) {
  StartWithShardOnA({kA, kB}, 2);

  EXPECT_THAT(Entry().followers, ElementsAre(kB));
  EXPECT_EQ(agreement_->shards_moving(), 0);
}

// ---- Lost followers and learners ----

TEST_F(ReplicaAgreementTest, ALostFollowerIsTakenOutAndALearnerBeginsInItsPlace) {
  StartWithShardOnA({kA, kB}, 1);
  agreement_->AddServer(kC, 1);

  const ReplicaChange change = agreement_->LoseServer(kB);

  ASSERT_THAT(change.entries, SizeIs(1));
  EXPECT_EQ(Entry().primary, kA);
  EXPECT_THAT(Entry().followers, IsEmpty());
  EXPECT_THAT(Entry().learners, ElementsAre(kC));
}

TEST_F(ReplicaAgreementTest, ACaughtUpLearnerBecomesFollower) {
  StartWithShardOnA({kA, kB, kC}, 1);
  const ReplicaSet before = Entry();
  agreement_->LoseServer(kB);
  const ServerId learner = Entry().learners.at(0);

  EXPECT_THAT(agreement_->OnCaughtUp({kShard, before.epoch, learner}).entries, IsEmpty());
  EXPECT_THAT(Entry().learners, ElementsAre(learner));
  Confirm(learner);

  EXPECT_THAT(Entry().followers, ElementsAre(learner));
  EXPECT_THAT(Entry().learners, IsEmpty());
}

TEST_F(ReplicaAgreementTest, AReturningServerIsALearner) {
  StartWithShardOnA({kA, kB}, 1);
  agreement_->LoseServer(kB);

  agreement_->AddServer(kB, 1);

  EXPECT_THAT(Entry().followers, IsEmpty());
  EXPECT_THAT(Entry().learners, ElementsAre(kB));
}

// ---- Failover ----

TEST_F(ReplicaAgreementTest, AFailoverNeedsEveryLiveMembersPromise) {
  StartWithShardOnA({kA, kB, kC}, 2);

  const ReplicaChange lost = agreement_->LoseServer(kA);
  EXPECT_THAT(lost.entries, SizeIs(1));
  EXPECT_EQ(Entry().primary, std::nullopt);
  EXPECT_THAT(PromiseFull(kB, 5).entries, IsEmpty());
  PromiseFull(kC, 4);

  EXPECT_EQ(Entry().primary, kB);
}

TEST_F(ReplicaAgreementTest, TheDeadStayListedUntilThereIsAPrimary) {
  StartWithShardOnA({kA, kB, kC}, 2);

  agreement_->LoseServer(kA);
  EXPECT_THAT(Entry().followers, ElementsAre(kA, kB, kC));
  PromiseFull(kB, 5);
  PromiseFull(kC, 5);

  EXPECT_EQ(Entry().RoleOf(kA), ReplicaRole::kNone);
}

TEST_F(ReplicaAgreementTest, TheLongestLogWins) {
  StartWithShardOnA({kA, kB, kC}, 2);
  agreement_->LoseServer(kA);

  PromiseFull(kB, 5);
  PromiseFull(kC, 6);

  EXPECT_EQ(Entry().primary, kC);
  EXPECT_THAT(Entry().followers, ElementsAre(kB));
}

TEST_F(ReplicaAgreementTest, AMemberThatIsNotFullBecomesLearner) {
  StartWithShardOnA({kA, kB, kC}, 2);
  agreement_->LoseServer(kA);

  PromiseEmpty(kC);
  agreement_->OnPromise(kC, {kShard, Entry(), 99, false});
  PromiseFull(kB, 5);

  EXPECT_EQ(Entry().primary, kB);
  EXPECT_THAT(Entry().followers, IsEmpty());
  EXPECT_THAT(Entry().learners, ElementsAre(kC));
}

TEST_F(ReplicaAgreementTest, ALearnerNeverWinsHoweverFullItSaysItIs) {
  StartWithShardOnA({kA}, 1);
  agreement_->AddServer(kB, 1);
  agreement_->LoseServer(kA);

  const ReplicaChange change = PromiseFull(kB, 9);

  EXPECT_THAT(change.lost, ElementsAre(kShard));
  EXPECT_EQ(Entry().primary, std::nullopt);
}

TEST_F(ReplicaAgreementTest, APromiseForAnEarlierEntryCountsForNothing) {
  StartWithShardOnA({kA, kB}, 1);
  const ReplicaSet before = Entry();
  agreement_->LoseServer(kA);

  const ReplicaChange change = agreement_->OnPromise(kB, {kShard, before, 5, true});

  EXPECT_THAT(change.entries, IsEmpty());
  EXPECT_EQ(Entry().primary, std::nullopt);
}

TEST_F(ReplicaAgreementTest, AMemberThatDiesInAFailoverIsNotElected) {
  StartWithShardOnA({kA, kB, kC, kD}, 3);
  agreement_->LoseServer(kA);
  PromiseFull(kB, 9);
  PromiseFull(kC, 5);
  agreement_->LoseServer(kB);

  agreement_->LoseServer(kD);

  EXPECT_EQ(Entry().primary, kC);
  EXPECT_THAT(Entry().followers, IsEmpty());
}

TEST_F(ReplicaAgreementTest, AServerThatComesBackDuringAFailoverIsNotWaitedFor) {
  StartWithShardOnA({kA, kB}, 1);
  agreement_->LoseServer(kA);

  agreement_->AddServer(kA, 1);
  PromiseFull(kB, 5);

  EXPECT_EQ(Entry().primary, kB);
  EXPECT_THAT(Entry().learners, ElementsAre(kA));
}

TEST_F(ReplicaAgreementTest, AShardThatNoLiveMemberHoldsIsReportedLostOnce) {
  StartWithShardOnA({kA, kB, kC}, 0);

  EXPECT_THAT(agreement_->LoseServer(kA).lost, ElementsAre(kShard));
  EXPECT_EQ(Entry().primary, std::nullopt);
  EXPECT_THAT(agreement_->LoseServer(kB).lost, IsEmpty());
  EXPECT_THAT(agreement_->AddServer(kA, 1).lost, IsEmpty());
  EXPECT_THAT(PromiseEmpty(kA).lost, IsEmpty());

  EXPECT_EQ(Entry().primary, std::nullopt);
  EXPECT_EQ(agreement_->shards_moving(), 1);
}

TEST_F(ReplicaAgreementTest, ALostShardIsForWhoeverHasBeenGivenItsState) {
  rebuilds_ = true;
  StartWithShardOnA({kA, kB}, 0);
  EXPECT_EQ(agreement_->Rebuild(kShard), std::nullopt);  // nothing is lost
  agreement_->LoseServer(kA);
  const ReplicaSet before = Entry();

  const auto entry = agreement_->Rebuild(kShard);

  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->primary, kB);
  EXPECT_EQ(Entry(), before);  // nobody else knows it yet
  EXPECT_THAT(agreement_->OnRebuilt(kShard, *entry).entries, SizeIs(1));
  EXPECT_EQ(Entry(), *entry);
  EXPECT_FALSE(agreement_->is_lost(kShard));
}

TEST_F(ReplicaAgreementTest, OnlyTheLastWhoWasToldToMakeAShardAnewMayReign) {
  rebuilds_ = true;
  StartWithShardOnA({kA, kB}, 0);
  agreement_->LoseServer(kA);
  const auto first = agreement_->Rebuild(kShard);
  const auto second = agreement_->Rebuild(kShard);

  EXPECT_THAT(agreement_->OnRebuilt(kShard, *first).entries, IsEmpty());
  EXPECT_THAT(agreement_->OnPromise(kB, {kShard, *first, 1, true}).entries, IsEmpty());
  EXPECT_TRUE(agreement_->is_lost(kShard));

  agreement_->OnRebuilt(kShard, *second);
  EXPECT_EQ(Entry(), *second);
}

TEST_F(ReplicaAgreementTest, AHolderThatReturnsInTimeEndsWhatWasBegunWithoutIt) {
  rebuilds_ = true;
  StartWithShardOnA({kA, kB}, 0);
  agreement_->LoseServer(kA);
  const auto entry = agreement_->Rebuild(kShard);
  agreement_->AddServer(kA, 1);

  PromiseFull(kA, 5);

  EXPECT_EQ(Entry().primary, kA);
  EXPECT_GT(Entry().epoch, entry->epoch);
  EXPECT_THAT(agreement_->OnRebuilt(kShard, *entry).entries, IsEmpty());
}

TEST_F(ReplicaAgreementTest, AReplacementMayRebuildTheShards) {
  rebuilds_ = true;
  StartWithShardOnA({kA}, 0);
  agreement_->LoseServer(kA);
  EXPECT_EQ(agreement_->Rebuild(kShard), std::nullopt);  // nobody is there
  agreement_->AddServer(kA, 1);
  EXPECT_FALSE(agreement_->HasPromised(kShard, kA));
  PromiseEmpty(kA);
  EXPECT_TRUE(agreement_->HasPromised(kShard, kA));

  const auto entry = agreement_->Rebuild(kShard);
  ASSERT_TRUE(entry.has_value());
  agreement_->OnRebuilt(kShard, *entry);

  EXPECT_EQ(Entry().primary, kA);
  EXPECT_EQ(agreement_->shards_moving(), 0);
}

TEST_F(ReplicaAgreementTest, APrimaryThatSaysItIsNotFullIsReplacedByOneThatIs) {
  StartWithShardOnA({kA, kB}, 1);

  PromiseEmpty(kA);
  EXPECT_EQ(Entry().primary, std::nullopt);
  PromiseEmpty(kA);
  PromiseFull(kB, 3);

  EXPECT_EQ(Entry().primary, kB);
  EXPECT_THAT(Entry().learners, ElementsAre(kA));
}

// ---- Handover ----

TEST_F(ReplicaAgreementTest, AHandoverIsAnnouncedWhenItIsDone) {
  StartWithShardOnA({kA, kB}, 0);
  agreement_->SetTarget({kB});
  Confirm(kB);
  const ReplicaSet before = Entry();

  const ReplicaChange started = Confirm(kB);
  ASSERT_THAT(started.handovers, SizeIs(1));
  const Handover handover = started.handovers[0].second;
  EXPECT_EQ(started.handovers[0].first, kA);
  EXPECT_EQ(handover.current, before.epoch);
  EXPECT_THAT(started.entries, IsEmpty());
  EXPECT_EQ(Entry(), before);
  const ReplicaChange done = agreement_->OnHandedOver({kShard, handover.next});

  EXPECT_EQ(done.entries.at(0).second, handover.next);
  EXPECT_EQ(done.entries.at(0).second.primary, kB);
  EXPECT_EQ(Entry().primary, kB);
}

TEST_F(ReplicaAgreementTest, AHandoverWaitsUntilItsTargetIsConfirmedAsFollower) {
  StartWithShardOnA({kA, kB}, 0);
  agreement_->SetTarget({kB});

  const ReplicaChange promoted = Confirm(kB);

  EXPECT_THAT(Entry().followers, ElementsAre(kB));
  EXPECT_THAT(promoted.handovers, IsEmpty());
}

TEST_F(ReplicaAgreementTest, ATargetThatDiesTurnsAHandoverIntoAFailover) {
  const Handover handover = StartHandoverToB();

  agreement_->LoseServer(kB);

  EXPECT_EQ(Entry().primary, std::nullopt);
  EXPECT_THAT(Entry().followers, ElementsAre(kA, kB));
  EXPECT_GT(Entry().epoch, handover.next.epoch);
  PromiseFull(kA, 5);
  EXPECT_EQ(Entry().primary, kA);
}

TEST_F(ReplicaAgreementTest, ASourceThatDiesTurnsAHandoverIntoAFailover) {
  const Handover handover = StartHandoverToB();
  agreement_->LoseServer(kA);

  const ReplicaChange late = agreement_->OnHandedOver({kShard, handover.next});

  EXPECT_THAT(late.entries, IsEmpty());
  EXPECT_EQ(Entry().primary, std::nullopt);
  PromiseFull(kB, 5);
  EXPECT_EQ(Entry().primary, kB);
}

TEST_F(ReplicaAgreementTest, APromiseWithTheEntryOfAHandoverSaysThatItIsDone) {
  const Handover handover = StartHandoverToB();

  const ReplicaChange change = agreement_->OnPromise(kB, {kShard, handover.next, 5, true});

  EXPECT_EQ(change.entries.at(0).second, handover.next);
  EXPECT_EQ(Entry().primary, kB);
}

TEST_F(ReplicaAgreementTest, AnEntryAboveAllThatWereGivenOutIsNotTakenOver) {
  StartWithShardOnA({kA, kB}, 1);
  ReplicaSet successors = Entry();
  successors.epoch = {Term{4}, 1};

  const ReplicaChange change = agreement_->OnPromise(kA, {kShard, successors, 5, true});

  EXPECT_THAT(change.entries, IsEmpty());
  EXPECT_EQ(Entry().epoch.term, Term{3});
}

// ---- Surplus members ----

TEST_F(ReplicaAgreementTest, AnOldPrimaryStaysUntilFollowersAreConfirmed) {
  StartWithShardOnA({kA, kB, kC}, 1);
  agreement_->SetTarget({kB, kC});
  ConfirmAll();  // the learner is a follower
  ConfirmAll();
  ASSERT_THAT(Entry().followers, ElementsAre(kB, kC));
  agreement_->OnHandedOver({kShard, {agreement_->epoch(), kB, {kA, kC}}});

  EXPECT_THAT(Entry().followers, ElementsAre(kA, kC));
  EXPECT_FALSE(agreement_->is_drained(kA));
  Confirm(kA);
  EXPECT_THAT(Entry().followers, ElementsAre(kA, kC));
  Confirm(kC);

  EXPECT_THAT(Entry().followers, ElementsAre(kC));
  EXPECT_TRUE(agreement_->is_drained(kA));
  ConfirmAll();
  EXPECT_EQ(agreement_->shards_moving(), 0);
}

// ---- Targets ----

class ReplicaAgreementMovesTest : public ReplicaAgreementTest {
 protected:
  void PlaceOnA(uint32_t num_shards) {
    std::vector<ReplicaAgreement::FirstEntry> entries;
    for (uint32_t i = 0; i < num_shards; ++i) entries.push_back({ShardId{i}, 100, kA});
    agreement_->Place(entries);
  }
  std::vector<ShardId> Learning() const {
    std::vector<ShardId> shards;
    for (const auto& [shard, entry] : agreement_->table()) {
      if (!entry.learners.empty()) shards.push_back(shard);
    }
    return shards;
  }
};

TEST_F(ReplicaAgreementMovesTest, NoMoreShardsAreCopiedAtOnceThanAServerMay) {
  Start({kA, kB}, 0, 2);
  PlaceOnA(10);

  agreement_->SetTarget({kB});
  EXPECT_THAT(Learning(), SizeIs(2));
  const ShardId done = Learning()[0];
  Confirm(kB, done);

  EXPECT_THAT(Learning(), SizeIs(2));
  EXPECT_THAT(Entry(done).followers, ElementsAre(kB));
  EXPECT_EQ(agreement_->shards_moving(), 10);
}

TEST_F(ReplicaAgreementMovesTest, ServersOfTheTargetCountWhenTheyArrive) {
  Start({kA}, 0);
  PlaceOnA(4);
  agreement_->SetTarget({kA, kB});
  EXPECT_EQ(agreement_->shards_moving(), 0);

  agreement_->AddServer(kB, 1);

  EXPECT_EQ(agreement_->shards_moving(), 2);
  EXPECT_THAT(Learning(), SizeIs(2));
}

TEST_F(ReplicaAgreementMovesTest, AHeavierServerGetsMore) {
  Start({kA}, 0);
  PlaceOnA(8);

  agreement_->AddServer(kB, 3);

  EXPECT_EQ(agreement_->shards_moving(), 6);
}

TEST_F(ReplicaAgreementMovesTest, WhatANewTargetDoesNotNeedIsTakenBack) {
  Start({kA, kB}, 0);
  PlaceOnA(4);
  agreement_->SetTarget({kB});
  Confirm(kB, ShardId{0});  // a follower

  agreement_->SetTarget({kA});

  EXPECT_TRUE(agreement_->is_drained(kB));
  EXPECT_EQ(agreement_->shards_moving(), 0);
}

TEST_F(ReplicaAgreementMovesTest, AHandoverUnderWayEndsBeforeANewTargetIsFollowed) {
  const Handover handover = StartHandoverToB();

  EXPECT_THAT(agreement_->SetTarget({kA}).entries, IsEmpty());
  agreement_->OnHandedOver({kShard, handover.next});
  EXPECT_EQ(Entry().primary, kB);
  EXPECT_THAT(Entry().followers, ElementsAre(kA));
  const ReplicaChange back = Confirm(kA);

  ASSERT_THAT(back.handovers, SizeIs(1));
  EXPECT_EQ(back.handovers[0].second.next.primary, kA);
}

TEST_F(ReplicaAgreementMovesTest, ShardsWithTooFewMembersComeBeforeShardsThatMove) {
  Start({kA, kB, kC, kD}, 1, 1);
  agreement_->SetTarget({kA, kB, kC});
  PlaceOnA(3);
  ASSERT_EQ(Entry(ShardId{2}).followers, Entry(ShardId{0}).followers);
  ASSERT_NE(Entry(ShardId{2}).followers, Entry(ShardId{1}).followers);
  agreement_->SetTarget({kA, kD});
  ASSERT_THAT(Learning(), ElementsAre(ShardId{0}));
  agreement_->LoseServer(Entry(ShardId{2}).followers[0]);

  Confirm(kD, ShardId{0});

  EXPECT_THAT(Learning(), ElementsAre(ShardId{2}));
}

TEST_F(ReplicaAgreementMovesTest, FollowersOutsideOfTheTargetStayUntilAllOfItIsThere) {
  StartWithShardOnA({kA, kB}, 1);

  agreement_->SetTarget({kA, kC});
  EXPECT_THAT(Entry().followers, ElementsAre(kB));
  agreement_->AddServer(kC, 1);
  ConfirmAll();
  ConfirmAll();

  EXPECT_THAT(Entry().followers, ElementsAre(kC));
  EXPECT_TRUE(agreement_->is_drained(kB));
}

TEST_F(ReplicaAgreementMovesTest, LostShardsHoldUpNoOthers) {
  Start({kA}, 0, 1);
  agreement_->Place({{ShardId{0}, 100, kA}});
  agreement_->AddServer(kB, 1);
  agreement_->SetTarget({kB});
  agreement_->LoseServer(kA);
  ASSERT_EQ(Entry(ShardId{0}).RoleOf(kB), ReplicaRole::kLearner);
  agreement_->Place({{ShardId{1}, 100, kB}});
  agreement_->AddServer(kC, 1);

  agreement_->SetTarget({kC});

  EXPECT_THAT(Entry(ShardId{1}).learners, ElementsAre(kC));
}

TEST_F(ReplicaAgreementMovesTest, WithNobodyOfTheTargetThereEverythingStays) {
  Start({kA, kB}, 1);
  PlaceOnA(3);

  const ReplicaChange change = agreement_->SetTarget({kC});

  EXPECT_THAT(change.entries, IsEmpty());
}

TEST_F(ReplicaAgreementMovesTest, WithoutServersEverythingIsLost) {
  Start({kA, kB}, 1);
  PlaceOnA(3);
  agreement_->LoseServer(kB);

  EXPECT_THAT(agreement_->LoseServer(kA).lost, SizeIs(3));

  EXPECT_THAT(agreement_->LoseServer(kA).lost, IsEmpty());
  EXPECT_THAT(agreement_->SetTarget({}).entries, IsEmpty());
}

TEST_F(ReplicaAgreementMovesTest, WordsAboutUnknownShardsAndServersChangeNothing) {
  Start({kA, kB}, 1);
  PlaceOnA(1);

  const Epoch epoch = Entry(ShardId{0}).epoch;
  EXPECT_THAT(agreement_->OnPromise(kA, {ShardId{9}, {}, 1, true}).entries, IsEmpty());
  EXPECT_THAT(agreement_->OnPromise(kD, {ShardId{0}, {epoch, kA}, 1, false}).entries, IsEmpty());
  EXPECT_THAT(agreement_->OnCaughtUp({ShardId{9}, epoch, kA}).entries, IsEmpty());
  EXPECT_THAT(agreement_->OnCaughtUp({ShardId{0}, epoch, kD}).entries, IsEmpty());
  EXPECT_THAT(agreement_->OnHandedOver({ShardId{9}, {epoch, kA}}).entries, IsEmpty());

  EXPECT_EQ(agreement_->epoch(), epoch);
}

}  // namespace
}  // namespace pushpull
