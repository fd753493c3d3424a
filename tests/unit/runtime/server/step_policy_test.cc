// SPDX-License-Identifier: Apache-2.0
//
// What each mode decides, one rule a test; whole jobs are in tests/integration/sim_*_test.cc.
#include "runtime/server/step_policy.h"

#include <gtest/gtest.h>

#include "tests/unit/runtime/server/one_shard.h"

namespace pushpull {
namespace {

constexpr WorkerId kA{0};
constexpr WorkerId kB{1};
constexpr Consistency kSyncMode{};
constexpr Consistency kBackupMode{.backup_workers = 1};
constexpr Consistency kGatedMode{.gated = true};
constexpr Consistency kAsyncMode{.mode = SyncMode::kAsync};
constexpr Consistency kBoundedMode{.mode = SyncMode::kBounded, .staleness = 3};

// Two workers are members; no chunk has a step under way.
class StepPolicyTest : public testing::Test {
 protected:
  void Use(const Consistency& mode, std::vector<ViewMember> members = {Member(0), Member(1)}) {
    rules_.Activate({++view_, std::move(members), mode});
  }
  const StepPolicy& policy() const { return rules_.policy(); }
  void Count(Chunk& chunk, uint32_t worker) {
    ReceivedContribution contribution = ContributionOf(PushOf(worker, 0));
    contribution.counts = false;  // values do not matter here
    chunk.step().CountHeld(contribution);
  }
  static void Hold(Chunk& chunk, uint32_t worker) {
    chunk.step().Hold(ContributionOf(PushOf(worker, 0)));
  }
  void Decide(std::vector<WorkerId> workers) {
    chunk().step().Learn({Step{0}, std::move(workers)}, Step{0});
  }
  PushVerdict Judge(const FrameHeader& push) { return policy().Judge(chunk(), push); }

  Chunk& leading() { return shard_.leading(); }
  Chunk& chunk() { return shard_.chunk(); }

  uint64_t view_ = 0;
  OneShard shard_;
  StepRules rules_;
};

// ---- every mode ----

TEST_F(StepPolicyTest, AHeldPushIsADuplicateInEveryMode) {
  Hold(chunk(), 0);

  for (const Consistency& mode : {kSyncMode, kBackupMode, kGatedMode, kAsyncMode}) {
    Use(mode);
    EXPECT_EQ(Judge(PushOf(0, 0)), PushVerdict::kDuplicate) << Describe(mode);
    EXPECT_EQ(Judge(PushOf(1, 0)), PushVerdict::kContribute) << Describe(mode);
  }
}

TEST_F(StepPolicyTest, APushOfTheProposedModeComesTooSoon) {
  Use(kSyncMode);
  Consistency next = kAsyncMode;
  next.from_step = Step{5};
  ASSERT_TRUE(rules_.Propose({2, {Member(0), Member(1)}, next}, Step{0}));

  EXPECT_EQ(Judge(PushOf(0, 5)), PushVerdict::kNotYet);
  EXPECT_EQ(Judge(PushOf(0, 0)), PushVerdict::kContribute);
}

TEST_F(StepPolicyTest, OnlySyncSharesValuesWithWorkers) {
  for (const Consistency& mode : {kBackupMode, kGatedMode, kAsyncMode, kBoundedMode}) {
    Use(mode);
    EXPECT_FALSE(policy().MayShareValues()) << Describe(mode);
  }
  Use(kSyncMode);
  EXPECT_TRUE(policy().MayShareValues());
}

TEST_F(StepPolicyTest, AViewWithoutAnyMemberLeftDropsWhatIsUnderWay) {
  Use(kSyncMode);
  const View all_new{2, {Member(0, kSecond)}, kSyncMode};
  EXPECT_EQ(rules_.Activate(all_new), StepRules::Contributions::kDrop);

  const View one_stays{3, {Member(0, kSecond), Member(1)}, kSyncMode};
  EXPECT_EQ(rules_.Activate(one_stays), StepRules::Contributions::kKeep);
}

TEST_F(StepPolicyTest, AGatedStepOutlivesAllItsWorkers) {
  Use(kGatedMode);

  EXPECT_EQ(rules_.Activate({2, {Member(0, kSecond)}, kGatedMode}),
            StepRules::Contributions::kKeep);
  EXPECT_EQ(rules_.Activate({3, {Member(0, kSecond)}, kSyncMode}), StepRules::Contributions::kDrop);
}

// ---- Sync ----

TEST_F(StepPolicyTest, SyncCompletesWithTheLastRequiredWorker) {
  Use(kSyncMode);
  Count(chunk(), 0);
  EXPECT_FALSE(policy().IsComplete(chunk()));

  Count(chunk(), 1);

  EXPECT_TRUE(policy().IsComplete(chunk()));
}

TEST_F(StepPolicyTest, OnlySyncClipsAndOnlyTensorsWithALimit) {
  OneShard clipped(OptimizerKind::kSum, 1.5);
  for (const Consistency& mode : {kBackupMode, kGatedMode, kAsyncMode, kBoundedMode}) {
    Use(mode);
    EXPECT_FALSE(policy().IsClipped(clipped.chunk())) << Describe(mode);
  }
  Use(kSyncMode);
  EXPECT_TRUE(policy().IsClipped(clipped.chunk()));
  EXPECT_FALSE(policy().IsClipped(chunk()));
}

TEST_F(StepPolicyTest, SyncAddsInAnyOrderUnlessDeterministic) {
  Use(kSyncMode);
  EXPECT_TRUE(policy().MayAddOnArrival(chunk(), kB));

  rules_.Configure({.deterministic = true});
  EXPECT_FALSE(policy().MayAddOnArrival(chunk(), kB));
  EXPECT_TRUE(policy().MayAddOnArrival(chunk(), kA));

  Count(chunk(), 0);
  EXPECT_TRUE(policy().MayAddOnArrival(chunk(), kB));
}

// ---- Backup ----

TEST_F(StepPolicyTest, BackupsLeadingChunkCompletesWithAQuorum) {
  rules_.SetDesiredWorkers(2);
  Use(kBackupMode);
  EXPECT_FALSE(policy().MayAddHeld(leading()));

  Hold(leading(), 1);
  EXPECT_TRUE(policy().MayAddHeld(leading()));
  EXPECT_FALSE(policy().IsComplete(leading()));

  Count(leading(), 1);
  EXPECT_TRUE(policy().IsComplete(leading()));
}

TEST_F(StepPolicyTest, BackupsOtherChunksNeedAnAdmission) {
  Use(kBackupMode);
  EXPECT_TRUE(policy().LacksAdmission(chunk()));
  EXPECT_FALSE(policy().LacksAdmission(leading()));

  Decide({kA});

  EXPECT_FALSE(policy().LacksAdmission(chunk()));
  EXPECT_EQ(Judge(PushOf(0, 0)), PushVerdict::kContribute);
  EXPECT_EQ(Judge(PushOf(1, 0)), PushVerdict::kNotAdmitted);
}

TEST_F(StepPolicyTest, BackupsOtherChunksWaitForTheAdmittedAlone) {
  Use(kBackupMode);
  Count(chunk(), 0);
  EXPECT_FALSE(policy().IsComplete(chunk()));

  Decide({kA});

  EXPECT_TRUE(policy().IsComplete(chunk()));
}

TEST_F(StepPolicyTest, AnAdmissionOfAnotherStepDoesNotCount) {
  Use(kBackupMode);

  chunk().step().Learn({Step{1}, {kA}}, Step{0});

  EXPECT_TRUE(policy().LacksAdmission(chunk()));
}

// ---- Gated ----

TEST_F(StepPolicyTest, GatedHoldsAllButTheLeadingChunkApart) {
  Use(kGatedMode);

  EXPECT_TRUE(policy().HoldsApart(chunk()));
  EXPECT_FALSE(policy().HoldsApart(leading()));
  EXPECT_FALSE(policy().MayAddOnArrival(chunk(), kA));
  EXPECT_FALSE(policy().MayAddOnArrival(leading(), kA));
}

TEST_F(StepPolicyTest, GatedDecidesWhenEverybodyHasAsked) {
  Use(kGatedMode);
  Hold(leading(), 0);
  EXPECT_FALSE(policy().MayAddHeld(leading()));

  Hold(leading(), 1);

  EXPECT_TRUE(policy().MayAddHeld(leading()));
}

TEST_F(StepPolicyTest, GatedAddsWhenTheDecisionAndAllOfItAreThere) {
  Use(kGatedMode);
  Hold(chunk(), 0);
  EXPECT_FALSE(policy().MayAddHeld(chunk()));

  Decide({kA, kB});
  EXPECT_FALSE(policy().MayAddHeld(chunk()));

  Hold(chunk(), 1);
  EXPECT_TRUE(policy().MayAddHeld(chunk()));
}

TEST_F(StepPolicyTest, GatedAddsNothingOnAServerThatIsNotPrimary) {
  Use(kGatedMode);
  Hold(chunk(), 0);
  Decide({kA});
  shard_.Install(2, ServerId{1});

  EXPECT_FALSE(policy().MayAddHeld(chunk()));
}

TEST_F(StepPolicyTest, GatedTakesThePushOfAWorkersNextProcess) {
  Use(kGatedMode);
  Hold(chunk(), 0);

  Use(kGatedMode, {Member(0, kSecond), Member(1)});

  EXPECT_EQ(Judge(PushOf(0, 0, kSecond)), PushVerdict::kContribute);
}

// ---- Async, Bounded ----

TEST_F(StepPolicyTest, AsyncCompletesWithOnePush) {
  Use(kAsyncMode);
  EXPECT_TRUE(policy().AppliesEachPush());
  EXPECT_FALSE(policy().IsComplete(chunk()));

  Count(chunk(), 1);

  EXPECT_TRUE(policy().IsComplete(chunk()));
}

TEST_F(StepPolicyTest, AsyncTakesAnyStepOnce) {
  Use(kAsyncMode);
  EXPECT_EQ(Judge(PushOf(0, 7)), PushVerdict::kContribute);

  HostBuffer nothing;
  ASSERT_TRUE(chunk().Initialize(Floats(kFloats, 0), 0).ok());
  ASSERT_TRUE(chunk()
                  .Apply({.kind = LogEntryKind::kSkip, .update = WorkerClock{kA, Step{8}}},
                         {.step = Step{0}},
                         nothing)
                  .ok());

  EXPECT_EQ(Judge(PushOf(0, 7)), PushVerdict::kAnswered);
  EXPECT_EQ(Judge(PushOf(0, 8)), PushVerdict::kContribute);
}

TEST_F(StepPolicyTest, OnlyBoundedLimitsStaleness) {
  Use(kBoundedMode);
  EXPECT_EQ(policy().StalenessLimit(), 3);

  Use(kAsyncMode);
  EXPECT_EQ(policy().StalenessLimit(), std::nullopt);
}

}  // namespace
}  // namespace pushpull
