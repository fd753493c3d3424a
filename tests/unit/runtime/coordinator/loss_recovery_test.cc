// SPDX-License-Identifier: Apache-2.0
//
// When a lost shard is given up, who is asked, and where each chunk comes from, one rule a test;
// whole jobs are in tests/integration/sim_loss_test.cc.
#include "runtime/coordinator/loss_recovery.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = ChunkCopy::Kind;
using Source = RebuiltChunk::Source;

constexpr ChunkId kChunk{3};
constexpr ServerId kLostServer{1};

ChunkCopy Whole(uint64_t version, uint64_t checksum = 1) {
  return {.chunk = kChunk,
          .kind = Kind::kComplete,
          .version = Step{version},
          .known = Step{version},
          .checksum = checksum};
}
ChunkCopy Initial() {
  return {.chunk = kChunk, .kind = Kind::kInitial};
}
ChunkCopy Nothing(uint64_t known = 0) {
  return {.chunk = kChunk, .kind = Kind::kNone, .version = {}, .known = Step{known}};
}

class LossRecoveryTest : public testing::Test {
 protected:
  LossRecoveryTest()
      : recovery_(
            {.grace = seconds(30), .answer_within = seconds(20), .server_within = minutes(10)}),
        job_{.workers = {kAnn, kBob}, .has_server = true, .has_begun = true, .has_steps = true} {}

  void Lose(bool may_return = false) { recovery_.Lose(now_, kShard, {kChunk}, may_return); }
  LossRecovery::Orders Advance(Duration later = Duration::zero()) {
    now_ += later;
    return recovery_.Advance(now_, job_);
  }
  void Answer(WorkerId worker, const ChunkCopy& copy) {
    recovery_.OnCopies(worker, {.round = round_, .shard = kShard, .chunks = {copy}});
  }
  // The plan for the one chunk when both have answered.
  ChunkPlan PlanOf(const ChunkCopy& ann, const ChunkCopy& bob) {
    Lose();
    round_ = Advance().round;
    Answer(kAnn, ann);
    Answer(kBob, bob);
    orders_ = Advance();
    return orders_.plans.empty() ? ChunkPlan{} : orders_.plans.front().chunks.front();
  }

  LossRecovery recovery_;
  LossRecovery::Job job_;
  LossRecovery::Orders orders_;
  uint64_t round_ = 0;
  SteadyTime now_{};
};

TEST_F(LossRecoveryTest, WorkersAreAskedAfterTheHoldersGrace) {
  Lose(true);
  EXPECT_THAT(Advance(seconds(29)).ask, IsEmpty());
  EXPECT_THAT(recovery_.Waiting(), ElementsAre(kShard));

  EXPECT_THAT(Advance(seconds(1)).ask, ElementsAre(kShard));

  EXPECT_THAT(recovery_.Waiting(), IsEmpty());
}

TEST_F(LossRecoveryTest, AHolderWhosePlaceIsTakenIsNotWaitedFor) {
  Lose(true);

  recovery_.StopWaiting(kShard);

  EXPECT_THAT(Advance().ask, ElementsAre(kShard));
}

TEST_F(LossRecoveryTest, AHolderThatComesBackEndsIt) {
  Lose(true);

  recovery_.OnRecovered(kShard);

  EXPECT_FALSE(recovery_.is_under_way());
  EXPECT_THAT(Advance(minutes(1)).ask, IsEmpty());
}

TEST_F(LossRecoveryTest, WithoutAServerTheJobFailsInTheEnd) {
  job_.has_server = false;
  Lose();
  EXPECT_THAT(Advance().ask, IsEmpty());
  EXPECT_EQ(Advance(minutes(9)).failure, "");

  EXPECT_THAT(Advance(minutes(1)).failure, HasSubstr("no server has come"));
}

TEST_F(LossRecoveryTest, NothingIsDecidedBeforeAllHaveAnswered) {
  Lose();
  round_ = Advance().round;
  Answer(kAnn, Whole(5));

  EXPECT_THAT(Advance().plans, IsEmpty());
}

TEST_F(LossRecoveryTest, ASilentWorkerIsRemovedAndDoesNotCount) {
  Lose();
  round_ = Advance().round;
  Answer(kAnn, Whole(5));
  EXPECT_THAT(Advance(seconds(20)).silent, ElementsAre(kBob));

  job_.workers = {kAnn};
  Answer(kBob, Whole(6));  // too late

  const LossRecovery::Orders orders = Advance();
  ASSERT_EQ(orders.plans.size(), 1U);
  EXPECT_EQ(orders.plans[0].chunks[0].chunk.version, Step{5});
}

TEST_F(LossRecoveryTest, AWorkerThatComesToTheViewIsAskedAsWell) {
  Lose();
  round_ = Advance().round;
  Answer(kAnn, Whole(5));
  job_.workers.insert(WorkerId{2});

  const LossRecovery::Orders orders = Advance();

  EXPECT_THAT(orders.ask, ElementsAre(kShard));
  EXPECT_GT(orders.round, round_);
  Answer(kBob, Whole(5));  // to the question before
  EXPECT_THAT(Advance().plans, IsEmpty());
}

TEST_F(LossRecoveryTest, TheHighestVersionWins) {
  const ChunkPlan plan = PlanOf(Whole(5), Whole(6, 2));

  EXPECT_EQ(plan.chunk.source, Source::kWorker);
  EXPECT_EQ(plan.chunk.version, Step{6});
  EXPECT_EQ(plan.chunk.checksum, 2U);
  EXPECT_EQ(plan.from, kBob);
}

TEST_F(LossRecoveryTest, AKnownVersionIsNotPublishedAgain) {
  const ChunkPlan plan = PlanOf(Whole(5), Nothing(7));

  EXPECT_EQ(plan.chunk.version, Step{7});
  EXPECT_EQ(plan.copied, Step{5});
}

TEST_F(LossRecoveryTest, CopiesOfOneVersionThatDifferEndTheJob) {
  PlanOf(Whole(5, 1), Whole(5, 2));

  EXPECT_THAT(orders_.failure,
              HasSubstr("shard 5: the copies of chunk 3 that worker-0 and worker-1"));
}

TEST_F(LossRecoveryTest, WithoutACopyTheValueComesFromTheCheckpoint) {
  job_.has_checkpoint = true;

  const ChunkPlan plan = PlanOf(Nothing(4), Nothing());

  EXPECT_EQ(plan.chunk.source, Source::kCheckpoint);
  EXPECT_EQ(plan.chunk.version, Step{4});
}

TEST_F(LossRecoveryTest, WithoutACopyAndACheckpointTheJobFails) {
  PlanOf(Nothing(4), Nothing());

  EXPECT_THAT(orders_.failure, HasSubstr("shard 5: no worker has a copy of chunk 3"));
}

TEST_F(LossRecoveryTest, BeforeTheFirstStepWorkersBringTheirOwn) {
  job_.has_steps = false;

  EXPECT_EQ(PlanOf(Initial(), Initial()).chunk.source, Source::kNew);
}

TEST_F(LossRecoveryTest, AnInitialValueThatWasPublishedIsNotChosenAgain) {
  job_.has_steps = false;

  const ChunkPlan plan = PlanOf(Initial(), Whole(0));

  EXPECT_EQ(plan.chunk.source, Source::kWorker);
  EXPECT_EQ(plan.from, kBob);
}

TEST_F(LossRecoveryTest, InitialValuesDoNotTakeThePlaceOfTrainedOnes) {
  PlanOf(Initial(), Initial());

  EXPECT_THAT(orders_.failure, HasSubstr("no worker has a copy"));
}

TEST_F(LossRecoveryTest, BeforeAnybodyWasLetInThereIsNothingToAskFor) {
  job_ = {.workers = {}, .has_server = true};
  Lose();

  const LossRecovery::Orders orders = Advance();

  ASSERT_EQ(orders.plans.size(), 1U);
  EXPECT_EQ(orders.plans[0].chunks[0].chunk.source, Source::kNew);
}

TEST_F(LossRecoveryTest, AnotherServerIsFoundWhenTheNewOneIsLost) {
  PlanOf(Whole(5), Whole(5));
  recovery_.OnRebuilding(kShard, kLostServer);
  recovery_.LoseServer(ServerId{0});
  EXPECT_THAT(Advance().ask, IsEmpty());

  recovery_.LoseServer(kLostServer);

  EXPECT_THAT(Advance().ask, ElementsAre(kShard));
}

TEST_F(LossRecoveryTest, AllAreAskedAgainWhenAWorkerWhoseCopyIsNeededGoes) {
  PlanOf(Whole(5), Whole(6));
  recovery_.OnRebuilding(kShard, kLostServer);
  job_.workers = {kBob};
  EXPECT_THAT(Advance().ask, IsEmpty());  // it is Bob's

  job_.workers = {kAnn};

  EXPECT_THAT(Advance().ask, ElementsAre(kShard));
}

// Whatever the workers have, and whoever of them goes: the value is one that somebody who is left
// has, no version that anybody who is left knows is below the one that counts, and it ends.
TEST(LossRecoverySeedsTest, NobodyWhoIsLeftHasSeenMoreThanWhatCounts) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](uint64_t below) { return random() % below; };
    std::map<WorkerId, ChunkCopy> copies;
    LossRecovery::Job job{.has_server = true, .has_begun = true, .has_steps = true};
    const uint64_t num_workers = 1 + draw(4);
    for (uint32_t w = 0; w < num_workers; ++w) {
      const uint64_t version = draw(4);
      copies[WorkerId{w}] = draw(4) == 0 ? Nothing(version) : Whole(version, version);
      job.workers.insert(WorkerId{w});
    }
    copies[WorkerId{0}] = Whole(draw(4), 0);
    copies[WorkerId{0}].checksum = copies[WorkerId{0}].version.value();
    LossRecovery recovery({});
    SteadyTime now{};
    recovery.Lose(now, kShard, {kChunk}, draw(2) == 0);
    bool is_planned = false;
    for (int event = 0; event < 100 && !is_planned; ++event) {
      now += seconds(draw(10));
      // The first worker stays: somebody must have a copy.
      if (draw(8) == 0) job.workers.erase(WorkerId{1 + static_cast<uint32_t>(draw(4))});
      const LossRecovery::Orders orders = recovery.Advance(now, job);
      ASSERT_EQ(orders.failure, "") << seed;
      for (const WorkerId worker : orders.silent) {
        if (worker != WorkerId{0}) job.workers.erase(worker);
      }
      static uint64_t round = 0;
      if (orders.round > 0) round = orders.round;
      for (const auto& [worker, copy] : copies) {
        if (draw(2) == 0)
          recovery.OnCopies(worker, {.round = round, .shard = kShard, .chunks = {copy}});
      }
      if (orders.plans.empty()) continue;
      is_planned = true;
      const ChunkPlan& plan = orders.plans[0].chunks[0];
      ASSERT_TRUE(job.workers.contains(plan.from)) << seed;
      EXPECT_EQ(copies[plan.from].version, plan.copied) << seed;
      for (const WorkerId worker : job.workers) {
        EXPECT_LE(copies[worker].known, plan.chunk.version) << seed;
        if (copies[worker].kind != Kind::kComplete) continue;
        EXPECT_LE(copies[worker].version, plan.copied) << seed;
      }
    }
    EXPECT_TRUE(is_planned) << seed;
  }
}

}  // namespace
}  // namespace pushpull
