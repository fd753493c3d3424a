// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/sync_step.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

constexpr Incarnation kRunning{11};
constexpr Incarnation kRestarted{22};

ViewMember StepMember(uint32_t worker, Incarnation incarnation = kRunning, uint64_t from_step = 0) {
  return {WorkerId{worker}, incarnation, Step{from_step}, std::nullopt};
}

Contribution From(uint32_t worker, double learning_rate = 0) {
  return {.worker = WorkerId{worker},
          .incarnation = kRunning,
          .weight = 1,
          .learning_rate = learning_rate};
}

class SyncStepTest : public testing::Test {
 protected:
  SyncStepTest() { membership_.Activate({1, {StepMember(0), StepMember(1), StepMember(2)}}); }

  PushVerdict Judge(uint64_t version,
                    uint64_t pushed,
                    uint32_t worker,
                    Incarnation incarnation = kRunning) const {
    return step_.Judge(membership_, Step{version}, Step{pushed}, WorkerId{worker}, incarnation);
  }

  MembershipView membership_;
  SyncStep step_;
};

TEST_F(SyncStepTest, APushForTheChunksVersionContributesOnce) {
  EXPECT_EQ(Judge(5, 5, 0), PushVerdict::kContribute);

  step_.Count(From(0));

  EXPECT_EQ(Judge(5, 5, 0), PushVerdict::kDuplicate);
  EXPECT_EQ(Judge(5, 5, 1), PushVerdict::kContribute);
}

TEST_F(SyncStepTest, EarlierPushesAreAnsweredLaterOnesRejected) {
  EXPECT_EQ(Judge(5, 4, 0), PushVerdict::kAnswered);
  EXPECT_EQ(Judge(5, 6, 0), PushVerdict::kTooEarly);
}

TEST_F(SyncStepTest, AnIncarnationOutsideTheViewMustRejoin) {
  EXPECT_EQ(Judge(5, 5, 0, kRestarted), PushVerdict::kNotMember);
}

TEST_F(SyncStepTest, AnOldIncarnationMustRejoinForAnEarlierStepToo) {
  membership_.Activate({2, {StepMember(0, kRestarted), StepMember(1)}});

  EXPECT_EQ(Judge(5, 4, 0), PushVerdict::kNotMember);
  EXPECT_EQ(Judge(5, 4, 1), PushVerdict::kAnswered);
}

TEST_F(SyncStepTest, AWorkerCountsOnceWhateverItsIncarnation) {
  step_.Count(From(0));
  membership_.Activate({2, {StepMember(0, kRestarted), StepMember(1)}});

  EXPECT_EQ(Judge(5, 5, 0, kRestarted), PushVerdict::kDuplicate);
}

TEST_F(SyncStepTest, IsCompleteWhenEveryRequiredWorkerIsCounted) {
  step_.Count(From(0));
  step_.Count(From(2));
  EXPECT_FALSE(step_.IsComplete(membership_, Step{5}));

  step_.Count(From(1));

  EXPECT_TRUE(step_.IsComplete(membership_, Step{5}));
}

TEST_F(SyncStepTest, ADeathCompletesTheStepOfTheOthers) {
  step_.Count(From(0));
  step_.Count(From(1));

  membership_.Activate({2, {StepMember(0), StepMember(1)}});

  EXPECT_TRUE(step_.IsComplete(membership_, Step{5}));
}

TEST_F(SyncStepTest, ADeadWorkersContributionDoesNotCompleteTheStep) {
  step_.Count(From(2));

  membership_.Activate({2, {StepMember(0), StepMember(1)}});

  EXPECT_FALSE(step_.IsComplete(membership_, Step{5}));
  EXPECT_TRUE(step_.HasCounted(WorkerId{2}));
}

TEST_F(SyncStepTest, AStepWithoutMembersWaitsForTheNextOne) {
  step_.Count(From(0));

  membership_.Activate({2, {}});

  EXPECT_FALSE(step_.IsComplete(membership_, Step{5}));
}

TEST_F(SyncStepTest, TheLowestWorkersLearningRateCounts) {
  step_.Count(From(2, 0.2));
  step_.Count(From(0, 0.1));
  step_.Count(From(1, 0.3));

  EXPECT_EQ(step_.learning_rate(), 0.1);
}

TEST_F(SyncStepTest, TheTurnIsInWorkerOrderAndSkipsThoseNotNeeded) {
  EXPECT_TRUE(step_.IsTurnOf(WorkerId{0}, membership_, Step{5}));
  EXPECT_FALSE(step_.IsTurnOf(WorkerId{1}, membership_, Step{5}));

  step_.Count(From(0));
  EXPECT_TRUE(step_.IsTurnOf(WorkerId{1}, membership_, Step{5}));
  EXPECT_FALSE(step_.IsTurnOf(WorkerId{2}, membership_, Step{5}));

  membership_.Activate({2, {StepMember(0), StepMember(2)}});
  EXPECT_TRUE(step_.IsTurnOf(WorkerId{2}, membership_, Step{5}));
}

TEST_F(SyncStepTest, OnlyTheAdmittedAreWaitedFor) {
  const Admission admitted{.step = Step{5}, .workers = {WorkerId{0}, WorkerId{2}}};

  step_.Count(From(2));
  EXPECT_FALSE(step_.IsComplete(membership_, Step{5}, &admitted));
  EXPECT_FALSE(step_.IsTurnOf(WorkerId{2}, membership_, Step{5}, &admitted));
  step_.Count(From(0));

  EXPECT_TRUE(step_.IsComplete(membership_, Step{5}, &admitted));
  EXPECT_TRUE(step_.IsTurnOf(WorkerId{2}, membership_, Step{5}, &admitted));
  EXPECT_FALSE(step_.IsComplete(membership_, Step{5}));
}

TEST_F(SyncStepTest, AStepWhoseAdmittedHaveDiedIsCompleteWithNobody) {
  const Admission admitted{.step = Step{5}, .workers = {WorkerId{2}}};
  EXPECT_FALSE(step_.IsComplete(membership_, Step{5}, &admitted));

  membership_.Activate({2, {StepMember(0), StepMember(1), StepMember(2, kRestarted, 9)}});

  EXPECT_TRUE(step_.IsComplete(membership_, Step{5}, &admitted));
}

}  // namespace
}  // namespace pushpull
