// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/joint_push.h"

#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/replication/joint_frame.h"
#include "tests/unit/runtime/server/one_shard.h"

namespace pushpull {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

Contribution Counted(uint32_t worker, double weight = 1, Incarnation incarnation = kFirst) {
  return {.worker = WorkerId{worker}, .incarnation = incarnation, .weight = weight};
}

ViewMember Grouped(uint32_t worker, uint64_t group) {
  ViewMember member = Member(worker);
  member.group = group;
  return member;
}

// Three workers are members in Sync, all of one group; no chunk has a step under way.
class JointPushTest : public testing::Test {
 protected:
  JointPushTest() { Use({}); }

  void Use(const Consistency& mode) {
    rules_.Activate({++view_, {Grouped(0, 5), Grouped(1, 5), Grouped(2, 5)}, mode});
  }
  void Count(uint32_t worker) {
    ReceivedContribution contribution = ContributionOf(PushOf(worker, 0));
    chunk().step().CountHeld(contribution);
  }
  // The push is worker 1's, whose weight is the unit.
  static FrameHeader Push(double weight = 2) {
    FrameHeader push = PushOf(1, 0);
    push.flags = kFlagJoint;
    push.weight = weight;
    push.learning_rate = 0.5;
    return push;
  }
  absl::StatusOr<PushVerdict> Judge(const std::vector<Contribution>& contributors,
                                    const FrameHeader& push = Push()) {
    const std::vector<std::byte> meta = EncodeJoint(contributors);
    received_ = ContributionOf(push);
    return JudgePush(rules_.policy(),
                     chunk(),
                     {.header = push, .meta = meta, .payload = {}, .received_at = {}},
                     received_);
  }
  Chunk& chunk() { return shard_.chunk(); }

  uint64_t view_ = 0;
  OneShard shard_;
  StepRules rules_;
  ReceivedContribution received_;
};

TEST_F(JointPushTest, ItCountsForAllOfItsWorkers) {
  const auto verdict = Judge({Counted(0, 3), Counted(1, 2), Counted(2, 0)});

  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_EQ(*verdict, PushVerdict::kContribute);
  chunk().step().CountHeld(received_);
  const auto contributors = chunk().step().counted().contributors();
  ASSERT_THAT(contributors, SizeIs(3));
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(contributors[i].worker, WorkerId{i});
    EXPECT_EQ(contributors[i].incarnation, kFirst);
    EXPECT_EQ(contributors[i].learning_rate, 0.5);
    EXPECT_EQ(contributors[i].step, Step{0});
  }
  EXPECT_TRUE(rules_.policy().IsComplete(chunk()));
}

TEST_F(JointPushTest, ItsSamplesAreThoseOfAllOfItsWorkers) {
  ASSERT_TRUE(Judge({Counted(0, 3), Counted(1, 2), Counted(2, 7)}).ok());

  EXPECT_EQ(received_.weight().unit, 2);
  EXPECT_EQ(received_.weight().samples, 12);
}

TEST_F(JointPushTest, ItsSamplesCountWithoutAGradient) {
  FrameHeader push = Push();
  push.flags |= kFlagNoGradient;
  ASSERT_TRUE(Judge({Counted(0, 3), Counted(1, 2)}, push).ok());
  received_.values = {};
  received_.has_gradient = false;
  chunk().step().CountHeld(received_);
  EXPECT_FALSE(HasGradient(chunk().step()));

  Count(2);

  EXPECT_TRUE(HasGradient(chunk().step()));
  EXPECT_TRUE(rules_.policy().IsComplete(chunk()));
}

TEST_F(JointPushTest, WorkersThatAreNotInItAreStillAwaited) {
  ASSERT_TRUE(Judge({Counted(0), Counted(1)}).ok());
  chunk().step().CountHeld(received_);
  EXPECT_FALSE(rules_.policy().IsComplete(chunk()));

  Count(2);

  EXPECT_TRUE(rules_.policy().IsComplete(chunk()));
}

TEST_F(JointPushTest, AHeldOneIsADuplicateForEachWorker) {
  ASSERT_TRUE(Judge({Counted(0), Counted(1)}).ok());
  chunk().step().Hold(std::move(received_));

  for (const uint32_t worker : {0U, 1U})
    EXPECT_EQ(rules_.policy().Judge(chunk(), PushOf(worker, 0)), PushVerdict::kDuplicate) << worker;
  EXPECT_EQ(rules_.policy().Judge(chunk(), PushOf(2, 0)), PushVerdict::kContribute);
}

TEST_F(JointPushTest, ARepeatedOneIsADuplicateUntilAnswered) {
  const std::vector<Contribution> contributors = {Counted(0), Counted(1)};
  ASSERT_TRUE(Judge(contributors).ok());
  chunk().step().CountHeld(received_);

  EXPECT_EQ(Judge(contributors).value_or(PushVerdict::kNotYet), PushVerdict::kDuplicate);

  ASSERT_TRUE(chunk().Initialize(Floats(kFloats, 0), 0).ok());
  HostBuffer nothing;
  ASSERT_TRUE(chunk().Apply({.kind = LogEntryKind::kSkip}, {.step = Step{0}}, nothing).ok());
  EXPECT_EQ(Judge(contributors).value_or(PushVerdict::kNotYet), PushVerdict::kAnswered);
}

TEST_F(JointPushTest, WhatHasCountedForSomeCountsForNone) {
  Count(0);

  const auto verdict = Judge({Counted(0), Counted(1)});

  EXPECT_EQ(verdict.status().code(), absl::StatusCode::kFailedPrecondition) << verdict.status();
  EXPECT_THAT(verdict.status().message(), HasSubstr("worker-1"));
  EXPECT_FALSE(chunk().step().counted().HasCounted(WorkerId{1}));
}

TEST_F(JointPushTest, TheSendersOwnPushMakesItAMixtureToo) {
  Count(1);

  EXPECT_EQ(Judge({Counted(0), Counted(1)}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(JointPushTest, AWorkerThatIsNoMemberIsNamed) {
  const auto unknown = Judge({Counted(0), Counted(1), Counted(7)});
  const auto next_process = Judge({Counted(0, 1, kSecond), Counted(1)});

  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(unknown.status().message(), HasSubstr("worker-7"));
  EXPECT_EQ(next_process.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(next_process.status().message(), HasSubstr("worker-0"));
}

TEST_F(JointPushTest, ItCountsForWorkersOfItsSendersGroupOnly) {
  rules_.Activate({++view_, {Grouped(0, 5), Grouped(1, 5), Grouped(2, 6)}});

  EXPECT_TRUE(Judge({Counted(0), Counted(1)}).ok());
  const auto foreign = Judge({Counted(1), Counted(2)});
  EXPECT_EQ(foreign.status().code(), absl::StatusCode::kPermissionDenied) << foreign.status();
  EXPECT_THAT(foreign.status().message(), HasSubstr("worker-1 has pushed for worker-2"));
}

TEST_F(JointPushTest, WithoutGroupsNoneCounts) {
  rules_.Activate({++view_, {Member(0), Member(1), Member(2)}});

  EXPECT_EQ(Judge({Counted(0), Counted(1), Counted(2)}).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(rules_.policy().Judge(chunk(), PushOf(0, 0)), PushVerdict::kContribute);
}

TEST_F(JointPushTest, ItsSendersMistakeIsItsVerdict) {
  FrameHeader stranger = Push();
  stranger.incarnation = kSecond;
  FrameHeader early = Push();
  early.step = Step{1};
  const std::vector<Contribution> of_stranger = {Counted(1, 1, kSecond), Counted(2)};

  EXPECT_EQ(Judge(of_stranger, stranger).value_or(PushVerdict::kNotYet), PushVerdict::kNotMember);
  EXPECT_EQ(Judge({Counted(1), Counted(2)}, early).value_or(PushVerdict::kNotYet),
            PushVerdict::kTooEarly);
}

TEST_F(JointPushTest, ItsSenderMustBeOneOfItsWorkers) {
  const auto missing = Judge({Counted(0), Counted(2)});
  const auto of_another_process = Judge({Counted(0), Counted(1, 1, kSecond)});

  EXPECT_EQ(missing.status().code(), absl::StatusCode::kInvalidArgument) << missing.status();
  EXPECT_EQ(of_another_process.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(JointPushTest, ItsUnitMustBeAboveZero) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double weight : {0.0, -1.0, nan}) {
    EXPECT_EQ(Judge({Counted(0), Counted(1)}, Push(weight)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << weight;
  }
}

TEST_F(JointPushTest, AMalformedListOfWorkersIsRefused) {
  EXPECT_EQ(Judge({Counted(1)}).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Judge({Counted(1), Counted(0)}).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(JointPushTest, OnlyPlainSyncCountsJointly) {
  for (const Consistency& mode : {Consistency{.backup_workers = 1},
                                  Consistency{.gated = true},
                                  Consistency{.mode = SyncMode::kAsync}}) {
    Use(mode);
    EXPECT_EQ(Judge({Counted(0), Counted(1)}).status().code(), absl::StatusCode::kPermissionDenied)
        << Describe(mode);
  }
  Use({});
  EXPECT_TRUE(Judge({Counted(0), Counted(1)}).ok());
  // It is the noise between the workers' own gradients.
  rules_.Configure({.noise_scale = true});
  EXPECT_EQ(Judge({Counted(0), Counted(1)}).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(JointPushTest, AClippedTensorsPushesDoNotCountJointly) {
  OneShard clipped(OptimizerKind::kSum, 1.5);
  const std::vector<std::byte> meta = EncodeJoint(std::vector{Counted(0), Counted(1)});

  const auto verdict = JudgePush(rules_.policy(),
                                 clipped.chunk(),
                                 {.header = Push(), .meta = meta, .payload = {}, .received_at = {}},
                                 received_);

  EXPECT_EQ(verdict.status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(JointPushTest, APushOfOneWorkerCountsForItAlone) {
  FrameHeader push = Push(0);
  push.flags = 0;
  received_ = ContributionOf(push);
  const auto judge = [&] {
    return JudgePush(rules_.policy(),
                     chunk(),
                     {.header = push, .meta = {}, .payload = {}, .received_at = {}},
                     received_)
        .value_or(PushVerdict::kNotYet);
  };

  EXPECT_EQ(judge(), PushVerdict::kContribute);
  EXPECT_EQ(received_.contribution.worker, WorkerId{1});
  EXPECT_THAT(received_.joined, SizeIs(0));
  EXPECT_EQ(received_.more_samples, 0);

  Use({.backup_workers = 1});
  EXPECT_EQ(judge(), PushVerdict::kNotAdmitted);
}

}  // namespace
}  // namespace pushpull
