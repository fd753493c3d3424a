// SPDX-License-Identifier: Apache-2.0
//
// What a new coordinator makes of its members' words; whole recoveries are in
// tests/integration/sim_schedule_test.cc.
#include "runtime/coordinator/collection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;

ReplicaSet Entry(uint64_t counter, ServerId primary, std::vector<ServerId> followers) {
  return {{Term{1}, counter}, primary, std::move(followers)};
}

View ViewOf(uint64_t number, std::vector<WorkerId> workers) {
  View view{.number = number, .members = {}};
  for (const WorkerId worker : workers)
    view.members.push_back({worker, Incarnation{7}, Step{3}, std::nullopt});
  return view;
}

// A server that holds the shard under this entry, in view 4 of Ann alone.
ServerReport Word(const ReplicaSet& entry) {
  return {.term = Term{2},
          .tensors = {{.id = TensorId{0},
                       .spec = {.name = "w", .dims = {4}, .optimizer = {}},
                       .first_chunk = ChunkId{0},
                       .shards = {kShard}}},
          .entries = {{kShard, entry}},
          .promises = {{.shard = kShard, .entry = entry, .seq = 9, .is_full = true}},
          .active = ViewOf(4, {kAnn}),
          .proposed = std::nullopt,
          .desired = {}};
}

RegisterWorker Who(WorkerId worker, uint64_t incarnation = 7) {
  return {.worker = worker,
          .incarnation = Incarnation{incarnation},
          .metrics_address = "",
          .promised = Term{1},
          .is_member = true};
}

TEST(CollectionTest, TheHighestEpochWinsEvenIfOnlyAWorkerKnowsIt) {
  Collection collection;
  collection.Add(kA, Word(Entry(1, kA, {kB})));
  collection.Add(Who(kAnn),
                 {.term = Term{2}, .entries = {{kShard, Entry(3, kB, {kA})}}, .desired = {}});

  const CollectedJob job = collection.Decide();

  EXPECT_EQ(job.entries.at(kShard), Entry(3, kB, {kA}));
  EXPECT_TRUE(job.has_begun);
}

TEST(CollectionTest, MembersThatAreListedAndHaveNotReportedAreMissing) {
  Collection collection;
  collection.Add(kA, Word(Entry(1, kA, {kB})));
  EXPECT_THAT(collection.FindMissing().servers, ElementsAre(kB));
  EXPECT_THAT(collection.FindMissing().workers, ElementsAre(Field(&ViewMember::worker, kAnn)));

  collection.Add(kB, Word(Entry(1, kA, {kB})));
  collection.Add(Who(kAnn), {});
  EXPECT_THAT(collection.FindMissing().servers, IsEmpty());
  EXPECT_THAT(collection.FindMissing().workers, IsEmpty());

  collection.Remove(kB);
  EXPECT_THAT(collection.FindMissing().servers, ElementsAre(kB));
}

TEST(CollectionTest, AShardIsUnheldUntilAFullMemberReports) {
  Collection collection;
  ServerReport learner = Word({{Term{1}, 4}, kA, {}, {kB}});
  learner.promises.front().is_full = false;
  collection.Add(kB, learner);
  EXPECT_THAT(collection.Unheld(), ElementsAre(kShard));

  collection.Add(kA, Word(Entry(1, kA, {})));
  EXPECT_THAT(collection.Unheld(), IsEmpty());
}

TEST(CollectionTest, AServerThatTheNewestEntryExcludesHoldsNothing) {
  Collection collection;
  collection.Add(kA, Word(Entry(1, kA, {kB})));
  collection.Add(Who(kAnn),
                 {.term = Term{2}, .entries = {{kShard, Entry(3, kB, {})}}, .desired = {}});

  EXPECT_THAT(collection.Unheld(), ElementsAre(kShard));
}

TEST(CollectionTest, AProposedViewThatAllAcceptedIsInForce) {
  Collection collection;
  ServerReport word = Word(Entry(1, kA, {kB}));
  word.proposed = ViewOf(5, {kAnn, kBob});
  collection.Add(kA, word);
  collection.Add(kB, word);

  EXPECT_EQ(collection.Decide().view, ViewOf(5, {kAnn, kBob}));
}

TEST(CollectionTest, AViewThatOnlySomeAcceptedIsSuperseded) {
  Collection collection;
  ServerReport word = Word(Entry(1, kA, {kB}));
  collection.Add(kB, word);
  word.proposed = ViewOf(5, {kAnn, kBob});
  collection.Add(kA, word);

  const CollectedJob job = collection.Decide();

  EXPECT_EQ(job.view, ViewOf(4, {kAnn}));
  EXPECT_EQ(job.last_view_number, 5U);
}

TEST(CollectionTest, AViewNeedsTheReportOfEveryShardMember) {
  Collection collection;
  ServerReport word = Word(Entry(1, kA, {kB}));
  word.proposed = ViewOf(5, {kAnn, kBob});
  collection.Add(kA, word);

  EXPECT_EQ(collection.Decide().view, ViewOf(4, {kAnn}));
}

TEST(CollectionTest, AJobWithoutViewAndValuesHasNotBegun) {
  Collection collection;
  ServerReport word = Word(Entry(1, kA, {}));
  word.active = {};
  word.promises.front().seq = 0;
  collection.Add(kA, word);

  EXPECT_TRUE(collection.has_state());
  EXPECT_FALSE(collection.Decide().has_begun);
}

TEST(CollectionTest, ValuesAreNoContributors) {
  Collection collection;
  ServerReport word = Word(Entry(1, kA, {}));
  word.active = {};
  collection.Add(kA, word);
  const bool has_begun = collection.Decide().has_begun;
  const bool has_contributors = collection.Decide().has_contributors;
  word.active = ViewOf(4, {kAnn});
  collection.Add(kA, word);

  EXPECT_TRUE(has_begun);
  EXPECT_FALSE(has_contributors);
  EXPECT_TRUE(collection.Decide().has_contributors);
}

TEST(CollectionTest, OnlyTheViewsOwnProcessIsEstablished) {
  Collection collection;
  collection.Add(kA, Word(Entry(1, kA, {})));
  collection.Add(Who(kAnn, 8), {.term = Term{2}, .entries = {}, .step = Step{3}, .desired = {}});
  EXPECT_THAT(collection.Decide().established, IsEmpty());

  collection.Add(Who(kAnn, 7), {.term = Term{2}, .entries = {}, .step = Step{3}, .desired = {}});
  EXPECT_THAT(collection.Decide().established, ElementsAre(kAnn));
}

TEST(CollectionTest, TheNewestDesiredSizeWins) {
  Collection collection;
  ServerReport word = Word(Entry(1, kA, {}));
  word.desired = {.revision = 2, .servers = 5};
  collection.Add(kA, word);
  collection.Add(Who(kAnn),
                 {.term = Term{2}, .entries = {}, .desired = {.revision = 3, .servers = 4}});

  EXPECT_EQ(collection.Decide().desired.servers, 4U);
}

}  // namespace
}  // namespace pushpull
