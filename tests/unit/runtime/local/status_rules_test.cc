// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/status_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;

JobStatus Uneven(uint64_t count, std::vector<Step> newest) {
  JobStatus status;
  status.uneven_steps = count;
  status.newest_uneven_steps = std::move(newest);
  return status;
}

JobStatus WithServer(uint32_t index, int64_t pid, bool is_alive) {
  JobStatus status;
  status.servers.push_back({.server = ServerId{index}});
  status.servers.back().pid = static_cast<uint64_t>(pid);
  status.servers.back().is_alive = is_alive;
  return status;
}

TEST(StatusRulesTest, EverybodyIsDesiredBeforeTheFirstAnswer) {
  EXPECT_TRUE(IsDesired({}, JobRole::kServer, 7));
  EXPECT_TRUE(IsDesired({}, JobRole::kWorker, 7));
}

TEST(StatusRulesTest, IndicesBelowTheSizeAreDesired) {
  JobStatus status;
  status.desired_servers = 2;
  status.desired_workers = 3;

  EXPECT_TRUE(IsDesired(status, JobRole::kServer, 1));
  EXPECT_FALSE(IsDesired(status, JobRole::kServer, 2));
  EXPECT_TRUE(IsDesired(status, JobRole::kWorker, 2));
  EXPECT_FALSE(IsDesired(status, JobRole::kWorker, 3));
}

TEST(StatusRulesTest, AServerIsListedByItsProcess) {
  const Endpoint server{.role = "server", .index = 1, .pid = 42};

  EXPECT_TRUE(IsListed(WithServer(1, 42, true), server));
  EXPECT_FALSE(IsListed(WithServer(1, 41, true), server)) << "an earlier process of the server";
  EXPECT_FALSE(IsListed(WithServer(0, 42, true), server));
  EXPECT_FALSE(IsListed(WithServer(1, 42, false), server));
}

TEST(StatusRulesTest, OnlyADepartedWorkerWasReleased) {
  JobStatus status;
  status.workers.push_back({.worker = WorkerId{0}});
  WorkerStatus& worker = status.workers.back();
  worker.was_released = true;
  worker.is_alive = true;
  EXPECT_FALSE(WasReleased(status, 0));

  worker.is_alive = false;
  EXPECT_TRUE(WasReleased(status, 0));
  EXPECT_FALSE(WasReleased(status, 1));

  worker.was_released = false;
  EXPECT_FALSE(WasReleased(status, 0));
}

TEST(StatusRulesTest, AWorkerHasJoinedSinceItsProcessStarted) {
  JobStatus status;
  status.workers.push_back({.worker = WorkerId{1}, .joined_seconds = 7});

  EXPECT_TRUE(HasJoinedWithin(status, 1, std::chrono::seconds(8)));
  EXPECT_FALSE(HasJoinedWithin(status, 1, std::chrono::seconds(6))) << "the process before it did";
  EXPECT_FALSE(HasJoinedWithin(status, 0, std::chrono::seconds(8)));
}

TEST(StatusRulesTest, ACoordinatorHearsOfThoseThatItDoesNotKnow) {
  JobStatus status;
  status.workers.push_back({.worker = WorkerId{0}, .has_left = true});
  status.workers.push_back({.worker = WorkerId{1}, .left_out = "cannot join"});

  const auto unknown = UnknownTo(
      status,
      {{WorkerId{0}, ""}, {WorkerId{1}, "cannot join"}, {WorkerId{2}, ""}, {WorkerId{3}, "ended"}});

  EXPECT_EQ(unknown, (std::vector<LeftOutWorker>{{WorkerId{2}, ""}, {WorkerId{3}, "ended"}}));
}

TEST(StatusRulesTest, AJobTrainsWithoutAMemberIfAnotherWorkerIsThere) {
  JobStatus status;
  status.phase = JobPhase::kRunning;
  status.workers.push_back({.worker = WorkerId{0}, .is_alive = true});
  status.workers.push_back({.worker = WorkerId{1}});

  EXPECT_TRUE(IsTrainingWithout(status, JobRole::kWorker, 1));
  EXPECT_TRUE(IsTrainingWithout(status, JobRole::kServer, 0));
  EXPECT_FALSE(IsTrainingWithout(status, JobRole::kWorker, 0));
  status.phase = JobPhase::kStarting;
  EXPECT_FALSE(IsTrainingWithout(status, JobRole::kWorker, 1));
}

TEST(StatusRulesTest, TheOnlyHolderOfLostShardsIsAwaited) {
  JobStatus status;
  status.state_losses.push_back({.servers = {ServerId{1}}});
  EXPECT_FALSE(IsAwaited(status, 1)) << "the shards are being rebuilt";

  status.state_losses.back().is_waiting = true;
  EXPECT_TRUE(IsAwaited(status, 1));
  EXPECT_FALSE(IsAwaited(status, 0));
}

TEST(StatusRulesTest, ServersWithoutChunksHaveNoStatistics) {
  JobStatus status = WithServer(0, 1, true);
  status.step = Step{5};
  EXPECT_TRUE(HasLastStatistics(status));

  status.servers.back().stats.chunks = 3;
  status.servers.back().stats.highest_version = Step{4};
  EXPECT_FALSE(HasLastStatistics(status));

  status.servers.back().stats.highest_version = Step{5};
  EXPECT_TRUE(HasLastStatistics(status));
}

// Of step 1, the later status lacks a worker that has ended; of step 2, the earlier one lacks a
// report that was on its way.
TEST(EarlierStatusTest, LossOfAStepIsTheOneOverMoreSamples) {
  JobStatus earlier;
  earlier.losses = {{Step{1}, 1.5, 20}, {Step{2}, 1.0, 10}};
  JobStatus now;
  now.losses = {{Step{1}, 1.0, 10}, {Step{2}, 2.5, 20}, {Step{3}, 3.0, 20}};

  const JobStatus all = WithEarlier(earlier, now);

  ASSERT_EQ(all.losses.size(), 3U);
  EXPECT_EQ(all.losses[0].loss, 1.5);
  EXPECT_EQ(all.losses[1].loss, 2.5);
  EXPECT_EQ(all.losses[2].loss, 3.0);
}

TEST(EarlierStatusTest, ManyCoordinatorsLeaveABoundedStatus) {
  JobStatus all;
  for (uint64_t term = 0; term < 20; ++term) {
    JobStatus now;
    for (uint64_t i = 0; i < 1000; ++i) now.losses.push_back({Step{term * 1000 + i}, 1.0, 20});
    now.resizes.assign(100, {.step = Step{term}});
    now.state_losses.assign(100, {.is_repaired = true});
    all = WithEarlier(all, now);
  }

  EXPECT_LE(all.losses.size(), JobStatus::kLossesMax);
  EXPECT_GE(all.losses.size(), JobStatus::kLossesMax / 2);
  EXPECT_EQ(all.losses.front().step, Step{0});
  EXPECT_GE(all.losses.back().step, Step{19'990});
  EXPECT_EQ(all.resizes.size(), JobStatus::kResizesMax);
  EXPECT_EQ(all.resizes.back().step, Step{19});
  EXPECT_EQ(all.state_losses.size(), JobStatus::kStateLossesMax);
}

TEST(EarlierStatusTest, UnevenStepsReportedTwiceCountOnce) {
  const JobStatus earlier = Uneven(3, {Step{2}, Step{5}, Step{9}});

  const JobStatus all = WithEarlier(earlier, Uneven(3, {Step{5}, Step{9}, Step{12}}));

  EXPECT_EQ(all.uneven_steps, 4U);
  EXPECT_THAT(all.newest_uneven_steps, ElementsAre(Step{2}, Step{5}, Step{9}, Step{12}));
}

TEST(EarlierStatusTest, UnevenStepsThatNobodySaysAnyMoreAreKept) {
  EXPECT_EQ(WithEarlier(Uneven(2, {Step{2}, Step{5}}), Uneven(0, {})).uneven_steps, 2U);
  EXPECT_EQ(WithEarlier(Uneven(0, {}), Uneven(1, {Step{5}})).uneven_steps, 1U);
}

TEST(EarlierStatusTest, AnOldUnlistedUnevenStepIsNotCountedAgain) {
  JobStatus earlier = Uneven(300, {});
  for (uint64_t i = 0; i < JobStatus::kUnevenStepsMax; ++i)
    earlier.newest_uneven_steps.emplace_back(100 + i);

  const JobStatus all = WithEarlier(earlier, Uneven(2, {Step{99}, Step{1000}}));

  EXPECT_EQ(all.uneven_steps, 301U);
  EXPECT_EQ(all.newest_uneven_steps.size(), JobStatus::kUnevenStepsMax);
  EXPECT_EQ(all.newest_uneven_steps.back(), Step{1000});
}

}  // namespace
}  // namespace pushpull
