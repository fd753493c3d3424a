// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/chunk.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/server/one_shard.h"

namespace pushpull {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr SteadyTime kNow{std::chrono::seconds(10)};

// A chunk with the value 0 on its primary; workers 0 and 1 are members in Sync.
class ChunkTest : public testing::Test {
 protected:
  explicit ChunkTest(OptimizerKind optimizer = OptimizerKind::kSgd) : shard_(optimizer) {
    rules_.Activate({1, {Member(0), Member(1)}});
    EXPECT_TRUE(chunk().Initialize(Floats(kFloats, 0), 0).ok());
    shard_.shard().member().Append(1);
  }

  void Contribute(uint32_t worker, float value = 1) {
    ReceivedContribution contribution =
        ContributionOf(PushOf(worker, chunk().state().version().value()), value);
    chunk().step().CountHeld(contribution);
    chunk().waiters().Add(contribution.waiter);
  }
  LogEntry Complete() {
    absl::StatusOr<LogEntry> entry = chunk().CompleteStep(rules_, pool_);
    EXPECT_TRUE(entry.ok()) << entry.status();
    shard_.shard().member().Append(1);
    return *std::move(entry);
  }
  std::span<const float> value() { return chunk().state().value()->floats(); }
  Chunk& chunk() { return shard_.chunk(); }

  OneShard shard_;
  StepRules rules_;
  const std::shared_ptr<BufferPool> pool_ = std::make_shared<BufferPool>();
};

TEST_F(ChunkTest, AStepAppliesTheSumOfItsContributions) {
  Contribute(0, 1);
  Contribute(1, 2);

  const LogEntry entry = Complete();

  EXPECT_EQ(chunk().state().version(), Step{1});
  EXPECT_THAT(value(), Each(-3));
  EXPECT_EQ(entry.step, Step{0});
  EXPECT_EQ(entry.meta.kind, LogEntryKind::kApply);
  EXPECT_THAT(entry.meta.contributors, ElementsAre(WorkerId{0}, WorkerId{1}));
  EXPECT_NE(chunk().made_by().contributors, 0);
  EXPECT_EQ(entry.meta.digest, chunk().made_by().contributors);
  EXPECT_FALSE(chunk().step().has_begun());
}

TEST_F(ChunkTest, AnEntryMakesTheSameValueOnAFollower) {
  OneShard other(OptimizerKind::kSgd);
  Chunk& follower = other.chunk();
  ASSERT_TRUE(follower.Initialize(Floats(kFloats, 0), 0).ok());
  Contribute(0, 1);
  Contribute(1, 2);
  const LogEntry entry = Complete();
  HostBuffer gradient = Floats(kFloats, 3);

  ASSERT_TRUE(follower.Apply(entry.meta, {.step = entry.step}, gradient).ok());

  EXPECT_THAT(follower.state().value()->floats(), testing::ElementsAreArray(value()));
  EXPECT_EQ(follower.made_by().contributors, chunk().made_by().contributors);
}

TEST_F(ChunkTest, AFollowerRefusesAnEntryOfAnotherVersion) {
  HostBuffer gradient = Floats(kFloats, 1);

  const absl::Status applied = chunk().Apply({}, {.step = Step{1}}, gradient);

  EXPECT_EQ(applied.code(), absl::StatusCode::kFailedPrecondition) << applied;
  EXPECT_EQ(chunk().state().version(), Step{0});
}

TEST_F(ChunkTest, AFollowerDropsWhatItHeldAsPrimary) {
  chunk().step().Hold(ContributionOf(PushOf(0, 0)));
  HostBuffer gradient = Floats(kFloats, 1);

  ASSERT_TRUE(chunk().Apply({}, {.step = Step{0}}, gradient).ok());

  EXPECT_THAT(chunk().step().held(), IsEmpty());
}

TEST_F(ChunkTest, AContributionThatSkipsKeepsTheValue) {
  ReceivedContribution contribution = ContributionOf(PushOf(0, 0));
  contribution.skips_step = true;
  chunk().step().CountHeld(contribution);
  Contribute(1);

  const LogEntry entry = Complete();

  EXPECT_EQ(entry.meta.kind, LogEntryKind::kSkip);
  EXPECT_EQ(chunk().state().version(), Step{1});
  EXPECT_THAT(value(), Each(0));
}

TEST_F(ChunkTest, AContributionThatDoesNotCountIsNoPartOfTheSum) {
  ReceivedContribution contribution = ContributionOf(PushOf(0, 0), 100);
  contribution.counts = false;
  chunk().step().CountHeld(contribution);
  Contribute(1, 2);

  const LogEntry entry = Complete();

  EXPECT_THAT(value(), Each(-2));
  EXPECT_THAT(entry.meta.contributors, SizeIs(2));
}

TEST_F(ChunkTest, AStepWithoutAnyGradientRunsNoOptimizerOnAnyMember) {
  OneShard other(OptimizerKind::kAdam);
  OneShard own(OptimizerKind::kAdam);
  Chunk& follower = other.chunk();
  Chunk& primary = own.chunk();
  own.shard().member().Append(1);
  ASSERT_TRUE(follower.Initialize(Floats(kFloats, 7), 5).ok());
  ASSERT_TRUE(primary.Initialize(Floats(kFloats, 7), 5).ok());
  for (const uint32_t worker : {0U, 1U}) {
    ReceivedContribution contribution = ContributionWithout(PushOf(worker, 0));
    primary.step().CountHeld(contribution);
  }

  const absl::StatusOr<LogEntry> entry = primary.CompleteStep(rules_, pool_);

  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(entry->meta.kind, LogEntryKind::kSkip);
  EXPECT_FALSE(entry->meta.has_gradient);
  EXPECT_THAT(entry->meta.contributors, ElementsAre(WorkerId{0}, WorkerId{1}));
  HostBuffer nothing;
  ASSERT_TRUE(follower.Apply(entry->meta, {.step = entry->step}, nothing).ok());
  for (const Chunk* member : {&primary, &follower}) {
    EXPECT_THAT(member->state().value()->floats(), Each(7));
    EXPECT_THAT(member->state().optimizer_state()->floats(), Each(0));
    EXPECT_EQ(member->state().version(), Step{1});
    EXPECT_FALSE(member->made_by().has_gradient);
    EXPECT_EQ(member->made_by().contributors, entry->meta.digest);
  }
  EXPECT_EQ(primary.state().updates(), follower.state().updates());
}

TEST_F(ChunkTest, OneGradientMakesItAStepLikeAnyOther) {
  ReceivedContribution contribution = ContributionWithout(PushOf(0, 0));
  chunk().step().CountHeld(contribution);
  Contribute(1, 2);

  const LogEntry entry = Complete();

  EXPECT_THAT(value(), Each(-2));
  EXPECT_EQ(entry.meta.kind, LogEntryKind::kApply);
  EXPECT_TRUE(entry.meta.has_gradient);
  EXPECT_TRUE(chunk().made_by().has_gradient);
  EXPECT_EQ(chunk().state().updates(), 1U);
}

TEST_F(ChunkTest, NoGradientMakesASumZerosAndLeavesAMaximum) {
  for (const auto& [reduction, expected] :
       {std::pair(Reduction::kSum, 0.0F), std::pair(Reduction::kMax, 7.0F)}) {
    OneShard own(OptimizerKind::kSum, 0, DType::kFloat32, reduction);
    OneShard other(OptimizerKind::kSum, 0, DType::kFloat32, reduction);
    ASSERT_TRUE(own.chunk().Initialize(Floats(kFloats, 7), 0).ok());
    ASSERT_TRUE(other.chunk().Initialize(Floats(kFloats, 7), 0).ok());
    ReceivedContribution contribution = ContributionWithout(PushOf(0, 0));
    own.chunk().step().CountHeld(contribution);

    const absl::StatusOr<LogEntry> entry = own.chunk().CompleteStep(rules_, pool_);

    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_FALSE(entry->meta.has_gradient);
    HostBuffer nothing;
    ASSERT_TRUE(other.chunk().Apply(entry->meta, {.step = entry->step}, nothing).ok());
    EXPECT_THAT(own.chunk().state().value()->floats(), Each(expected));
    EXPECT_THAT(other.chunk().state().value()->floats(), Each(expected));
  }
}

TEST_F(ChunkTest, AGradientThatIsNotFiniteIsOneAllTheSame) {
  ReceivedContribution contribution = ContributionOf(PushOf(0, 0));
  contribution.skips_step = true;
  contribution.counts = false;
  chunk().step().CountHeld(contribution);

  EXPECT_TRUE(Complete().meta.has_gradient);
}

TEST_F(ChunkTest, APushOfAsyncWithoutAGradientMovesOnlyTheClock) {
  rules_.Activate({2, {Member(0), Member(1)}, {.mode = SyncMode::kAsync}});
  ReceivedContribution contribution = ContributionWithout(PushOf(1, 4));
  chunk().step().CountHeld(contribution);

  const LogEntry entry = Complete();

  EXPECT_EQ(entry.meta.update, (WorkerClock{WorkerId{1}, Step{5}}));
  EXPECT_THAT(value(), Each(0));
  EXPECT_EQ(chunk().state().updates(), 0U);
}

TEST_F(ChunkTest, EachPushOfAsyncMovesItsWorkersClock) {
  rules_.Activate({2, {Member(0), Member(1)}, {.mode = SyncMode::kAsync}});
  ReceivedContribution contribution = ContributionOf(PushOf(1, 6));
  chunk().step().CountHeld(contribution);

  const LogEntry entry = Complete();

  EXPECT_EQ(entry.meta.update, (WorkerClock{WorkerId{1}, Step{7}}));
  EXPECT_THAT(chunk().clocks().entries(), ElementsAre(*entry.meta.update));
  EXPECT_EQ(chunk().made_by().contributors, 0);
}

TEST_F(ChunkTest, TheLeadingChunkRemembersWhoCounted) {
  Chunk& leading = shard_.leading();
  ASSERT_TRUE(leading.Initialize(Floats(leading.state().num_bytes() / sizeof(float), 0), 0).ok());
  HostBuffer nothing;
  StreamMeta entry{.kind = LogEntryKind::kSkip};
  entry.contributors = {WorkerId{1}};

  ASSERT_TRUE(leading.Apply(entry, {.step = Step{0}}, nothing).ok());

  ASSERT_NE(leading.admission(), nullptr);
  EXPECT_EQ(*leading.admission(), (Admission{Step{0}, {WorkerId{1}}}));
  rules_.Activate({2, {Member(0), Member(1)}, {.from_step = Step{9}}});
  ASSERT_TRUE(leading.FollowView(rules_).ok());
  EXPECT_EQ(leading.state().version(), Step{9});
  EXPECT_EQ(leading.admission(), nullptr);
}

// ---- clipping ----

TEST_F(ChunkTest, AClippedStepAppliesTheScaledSumOnEveryMember) {
  OneShard other(OptimizerKind::kSgd);
  Chunk& follower = other.chunk();
  ASSERT_TRUE(follower.Initialize(Floats(kFloats, 0), 0).ok());
  Contribute(0, 1);
  Contribute(1, 2);
  chunk().step().sum().BeginClip(!chunk().step().skips());
  chunk().step().sum().clip().scale = 0.5;

  const LogEntry entry = Complete();
  HostBuffer sum = Floats(kFloats, 3);
  ASSERT_TRUE(follower.Apply(entry.meta, {.step = entry.step}, sum).ok());

  EXPECT_THAT(value(), Each(-1.5F));
  EXPECT_THAT(follower.state().value()->floats(), Each(-1.5F));
  EXPECT_EQ(chunk().made_by().clip_scale, 0.5);
  EXPECT_EQ(follower.made_by().clip_scale, 0.5);
}

TEST_F(ChunkTest, TheSquaresAreThoseOfTheReducedGradient) {
  Contribute(0, 1);
  Contribute(1, 2);

  EXPECT_TRUE(chunk().step().sum().BeginClip(!chunk().step().skips()));

  EXPECT_EQ(chunk().step().sum().clip().squares, 9.0 * kFloats);
  EXPECT_FALSE(chunk().step().sum().BeginClip(!chunk().step().skips()));
}

TEST_F(ChunkTest, AStepThatKeepsTheValueHasNoPartInTheNorm) {
  ReceivedContribution contribution = ContributionOf(PushOf(0, 0), 5);
  contribution.skips_step = true;
  chunk().step().CountHeld(contribution);

  chunk().step().sum().BeginClip(!chunk().step().skips());

  EXPECT_EQ(chunk().step().sum().clip().squares, 0);
}

TEST_F(ChunkTest, AFurtherContributionNeedsAnotherScale) {
  Contribute(0, 1);
  chunk().step().sum().BeginClip(!chunk().step().skips());
  chunk().step().sum().clip().scale = 0.5;
  Contribute(1, 2);

  EXPECT_TRUE(chunk().step().sum().BeginClip(!chunk().step().skips()));

  EXPECT_EQ(chunk().step().sum().clip().squares, 9.0 * kFloats);
  EXPECT_EQ(chunk().step().sum().clip().scale, std::nullopt);
}

TEST_F(ChunkTest, AStepThatIsDroppedForgetsItsScale) {
  Contribute(0, 1);
  chunk().step().sum().BeginClip(!chunk().step().skips());

  chunk().EndPrimary(false);

  EXPECT_EQ(chunk().step().sum().clip().squares, std::nullopt);
}

// ---- requests ----

TEST_F(ChunkTest, ARequestIsAnsweredAtItsVersion) {
  Contribute(0);
  Contribute(1);
  EXPECT_THAT(chunk().TakeAnswerable(rules_, kNow), IsEmpty());

  Complete();

  EXPECT_THAT(chunk().TakeAnswerable(rules_, kNow), SizeIs(2));
  EXPECT_TRUE(chunk().waiters().empty());
}

TEST_F(ChunkTest, NothingIsAnsweredBeforeFollowersHaveTheEntry) {
  const ReplicaSet with_follower{
      .epoch = {Term{1}, 2}, .primary = ServerId{0}, .followers = {ServerId{1}}};
  shard_.shard().member().Install(with_follower, ShardMember::Via::kCoordinator);
  Contribute(0);
  Contribute(1);

  Complete();

  EXPECT_THAT(chunk().TakeAnswerable(rules_, kNow), IsEmpty());
}

TEST_F(ChunkTest, ARequestThatKnowsANewerEntryWaits) {
  FrameHeader pull{.type = FrameType::kPull, .worker = WorkerId{0}};
  pull.epoch = {Term{1}, 2};
  chunk().waiters().Add({.request = pull});
  EXPECT_THAT(chunk().TakeAnswerable(rules_, kNow), IsEmpty());

  shard_.Install(2, ServerId{0});

  EXPECT_THAT(chunk().TakeAnswerable(rules_, kNow), SizeIs(1));
}

TEST_F(ChunkTest, BoundedDelaysTheReadOfAFastWorker) {
  rules_.Activate({2, {Member(0), Member(1)}, {.mode = SyncMode::kBounded, .staleness = 1}});
  const FrameHeader pull{.type = FrameType::kPull, .worker = WorkerId{0}};
  chunk().waiters().Add({.request = pull, .clock = Step{2}});
  EXPECT_THAT(chunk().TakeAnswerable(rules_, kNow), IsEmpty());

  ReceivedContribution slow = ContributionOf(PushOf(1, 0));
  ReceivedContribution fast = ContributionOf(PushOf(0, 1));
  chunk().step().CountHeld(slow);
  Complete();
  chunk().step().CountHeld(fast);
  Complete();

  EXPECT_THAT(chunk().TakeAnswerable(rules_, kNow), SizeIs(1));
}

TEST_F(ChunkTest, ARepeatedPushReplacesItsRequest) {
  chunk().waiters().Add({.request = PushOf(0, 0)});
  chunk().waiters().Add({.request = {.type = FrameType::kPull, .worker = WorkerId{0}}});
  chunk().waiters().Add({.request = PushOf(0, 1)});

  const std::vector<Waiter> waiters = chunk().waiters().TakeAll();

  ASSERT_THAT(waiters, SizeIs(2));
  EXPECT_EQ(waiters[0].request.type, FrameType::kPull);
  EXPECT_EQ(waiters[1].request.step, Step{1});
}

TEST_F(ChunkTest, APushAfterTheStepCompletedHasNoPhases) {
  chunk().waiters().SetStepTimes(kNow, kNow);
  Waiter early{.taken_up_at = kNow - std::chrono::seconds(1)};
  Waiter late{.taken_up_at = kNow + std::chrono::seconds(1)};

  chunk().waiters().FinishTiming(kNow + std::chrono::seconds(2), early);
  chunk().waiters().FinishTiming(kNow + std::chrono::seconds(2), late);

  EXPECT_EQ(early.timing.wait_ns, 1'000'000'000);
  EXPECT_EQ(early.timing.replicate_ns, 2'000'000'000);
  EXPECT_EQ(late.timing.replicate_ns, 0);
}

// ---- demotion, restore ----

TEST_F(ChunkTest, ADemotedServerKeepsWhatIsHeldApart) {
  chunk().step().Hold(ContributionOf(PushOf(0, 0)));

  chunk().EndPrimary(true);
  EXPECT_THAT(chunk().step().held(), SizeIs(1));

  chunk().EndPrimary(false);
  EXPECT_THAT(chunk().step().held(), IsEmpty());
}

TEST_F(ChunkTest, ARestoredChunkHasTheSnapshotsState) {
  Contribute(0);

  const absl::Status restored =
      chunk().Restore({.version = Step{7},
                       .updates = 6,
                       .value = Floats(kFloats, 5),
                       .optimizer_state = Floats(chunk().state().state_bytes() / sizeof(float), 1),
                       .clocks = {{WorkerId{1}, Step{3}}},
                       .made_by = {.contributors = 99, .clip_scale = 0.25}});

  EXPECT_TRUE(restored.ok());
  EXPECT_EQ(chunk().state().version(), Step{7});
  EXPECT_THAT(value(), Each(5));
  EXPECT_EQ(chunk().made_by().contributors, 99);
  EXPECT_EQ(chunk().made_by().clip_scale, 0.25);
  EXPECT_EQ(chunk().clocks().Highest(), Step{3});
}

TEST_F(ChunkTest, AClearedChunkHasNoValue) {
  chunk().Clear();

  EXPECT_FALSE(chunk().state().is_initialized());
  EXPECT_EQ(chunk().made_by().contributors, 0);
}

// ---- the step under way ----

TEST_F(ChunkTest, ContributionsAreHeldInWorkerOrder) {
  for (const uint32_t worker : {2U, 0U, 1U}) chunk().step().Hold(ContributionOf(PushOf(worker, 0)));

  EXPECT_EQ(chunk().step().TakeFirstHeld().contribution.worker, WorkerId{0});
  EXPECT_EQ(chunk().step().TakeFirstHeld().contribution.worker, WorkerId{1});
}

TEST_F(ChunkTest, AWorkersNextProcessReplacesWhatIsHeld) {
  chunk().step().Hold(ContributionOf(PushOf(0, 0)));
  chunk().step().Hold(ContributionOf(PushOf(0, 0, kSecond)));

  ASSERT_THAT(chunk().step().held(), SizeIs(1));
  EXPECT_EQ(chunk().step().held().front().contribution.incarnation, kSecond);
}

TEST_F(ChunkTest, AWithdrawnWorkerIsNotWaitedFor) {
  chunk().step().Learn({Step{0}, {WorkerId{0}, WorkerId{1}}}, Step{0});
  chunk().step().Hold(ContributionOf(PushOf(0, 0)));

  chunk().step().Withdraw(WorkerId{0}, Step{1});
  chunk().step().Withdraw(WorkerId{1}, Step{1});

  EXPECT_THAT(chunk().step().decided()->workers, ElementsAre(WorkerId{0}));
}

TEST_F(ChunkTest, AnOlderDecisionChangesNothing) {
  chunk().step().Learn({Step{5}, {WorkerId{0}}}, Step{5});

  chunk().step().Learn({Step{4}, {WorkerId{1}}}, Step{3});

  EXPECT_EQ(chunk().step().decided()->step, Step{5});
}

// ---- handover ----

TEST_F(ChunkTest, AHandoverWaitsForWhatIsHeldApart) {
  rules_.Activate({2, {Member(0), Member(1)}, {.gated = true}});
  Shard& shard = shard_.shard();
  chunk().step().Hold(ContributionOf(PushOf(0, 0)));
  shard.DeferHandover({.shard = shard.id()});
  EXPECT_FALSE(shard.TakeHandoverIfFree(rules_.policy()));

  chunk().step().Clear();

  EXPECT_TRUE(shard.TakeHandoverIfFree(rules_.policy()));
  EXPECT_FALSE(shard.TakeHandoverIfFree(rules_.policy()));
}

}  // namespace
}  // namespace pushpull
