// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/worker_clocks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

constexpr WorkerId kAda{0};
constexpr WorkerId kBea{1};
constexpr Incarnation kEarlier{11};
constexpr Incarnation kLater{12};

ViewMember ClockedMember(WorkerId worker, uint64_t from_step, Incarnation incarnation = kEarlier) {
  return {worker, incarnation, Step{from_step}, std::nullopt};
}

View AsyncView(uint64_t number, std::vector<ViewMember> members) {
  return {
      .number = number, .members = std::move(members), .consistency = {.mode = SyncMode::kAsync}};
}

MembershipView MembershipOf(View view) {
  MembershipView membership;
  membership.Activate(view);
  return membership;
}

TEST(WorkerClocksTest, AStepCountsOnce) {
  const MembershipView membership = MembershipOf(AsyncView(1, {ClockedMember(kAda, 0)}));
  WorkerClocks clocks;

  EXPECT_EQ(clocks.Judge(membership, Step{0}, kAda, kEarlier), PushVerdict::kContribute);
  clocks.Record({kAda, Step{1}});

  EXPECT_EQ(clocks.Judge(membership, Step{0}, kAda, kEarlier), PushVerdict::kAnswered);
  EXPECT_EQ(clocks.Judge(membership, Step{1}, kAda, kEarlier), PushVerdict::kContribute);
}

TEST(WorkerClocksTest, ALateCopyOfAnEarlierStepDoesNotTurnTheClockBack) {
  WorkerClocks clocks;
  clocks.Record({kAda, Step{5}});

  clocks.Record({kAda, Step{3}});

  EXPECT_THAT(clocks.entries(), testing::ElementsAre(WorkerClock{kAda, Step{5}}));
}

TEST(WorkerClocksTest, OnlyMembersContribute) {
  const MembershipView membership = MembershipOf(AsyncView(1, {ClockedMember(kAda, 0)}));
  const WorkerClocks clocks;

  EXPECT_EQ(clocks.Judge(membership, Step{0}, kBea, kEarlier), PushVerdict::kNotMember);
  EXPECT_EQ(clocks.Judge(membership, Step{0}, kAda, kLater), PushVerdict::kNotMember);
}

TEST(WorkerClocksTest, AStepOfTheModeBeforeHasBeenApplied) {
  const MembershipView membership = MembershipOf(AsyncView(4, {ClockedMember(kAda, 100)}));
  const WorkerClocks clocks;

  EXPECT_EQ(clocks.Judge(membership, Step{99}, kAda, kEarlier), PushVerdict::kAnswered);
  EXPECT_EQ(clocks.Judge(membership, Step{100}, kAda, kEarlier), PushVerdict::kContribute);
}

TEST(WorkerClocksTest, TheProcessBeforeIsRefusedWhereItsSuccessorIsKnown) {
  const MembershipView membership = MembershipOf(AsyncView(4, {ClockedMember(kAda, 20, kLater)}));
  WorkerClocks clocks;
  clocks.Record({kAda, Step{10}});

  EXPECT_EQ(clocks.Judge(membership, Step{9}, kAda, kEarlier), PushVerdict::kNotMember);
  EXPECT_EQ(clocks.Judge(membership, Step{10}, kAda, kEarlier), PushVerdict::kNotMember);
  EXPECT_EQ(clocks.Judge(membership, Step{20}, kAda, kLater), PushVerdict::kContribute);
}

TEST(WorkerClocksTest, AWorkerWithoutPushesCountsWithItsFromStep) {
  const View view = AsyncView(1, {ClockedMember(kAda, 0), ClockedMember(kBea, 30)});
  WorkerClocks clocks;
  clocks.Record({kAda, Step{40}});

  EXPECT_EQ(clocks.Lowest(view), Step{30});
}

TEST(WorkerClocksTest, ALeavingWorkerDelaysNobody) {
  View view = AsyncView(1, {ClockedMember(kAda, 0), ClockedMember(kBea, 0)});
  view.members[0].end_step = Step{3};
  WorkerClocks clocks;
  clocks.Record({kAda, Step{3}});
  clocks.Record({kBea, Step{9}});

  EXPECT_EQ(clocks.Lowest(view), Step{9});
}

TEST(WorkerClocksTest, AnEmptyViewDelaysNobody) {
  WorkerClocks clocks;

  EXPECT_EQ(clocks.Lowest(AsyncView(1, {})), Step{std::numeric_limits<uint64_t>::max()});
}

TEST(WorkerClocksTest, TheLowestEqualsAScanAfterAnyHistory) {
  std::mt19937_64 random(7);
  WorkerClocks clocks;
  View view = AsyncView(1, {});
  std::map<WorkerId, Step> model;
  for (int i = 0; i < 20'000; ++i) {
    if (i % 100 == 0) {
      view = AsyncView(view.number + 1, {});
      for (uint32_t w = 0; w < 6; ++w) {
        if (random() % 4 != 0) view.members.push_back(ClockedMember(WorkerId{w}, random() % 300));
      }
    }
    const WorkerId worker{static_cast<uint32_t>(random() % 6)};
    model[worker] = Step{model[worker].value() + 1 + random() % 2};
    clocks.Record({worker, model[worker]});

    Step lowest{std::numeric_limits<uint64_t>::max()};
    for (const ViewMember& member : view.members)
      lowest = std::min(lowest, std::max(member.from_step, model[member.worker]));
    ASSERT_EQ(clocks.Lowest(view), lowest) << "after " << i;
  }
}

TEST(WorkerClocksTest, AReadWaitsForWorkersBehindTheBound) {
  EXPECT_FALSE(IsTooEarlyToRead(Step{0}, 3, Step{3}));
  EXPECT_TRUE(IsTooEarlyToRead(Step{0}, 3, Step{4}));
  EXPECT_FALSE(IsTooEarlyToRead(Step{1}, 3, Step{4}));
  EXPECT_TRUE(IsTooEarlyToRead(Step{4}, 0, Step{5}));
  EXPECT_FALSE(IsTooEarlyToRead(Step{5}, 0, Step{5}));
}

}  // namespace
}  // namespace pushpull
