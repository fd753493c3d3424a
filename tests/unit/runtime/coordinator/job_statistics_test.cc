// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/job_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/coordinator/members.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

JobStatus StatusOf(const JobStatistics& statistics) {
  JobStatus status;
  statistics.AddTo(status);
  return status;
}

TEST(JobStatisticsTest, StepsOfAProcessAreKnownAfterItsEnd) {
  JobStatistics statistics;
  statistics.OnWorker(WorkerId{0}, {.steps_made = 3});

  statistics.RetireWorker(WorkerId{0});

  EXPECT_EQ(statistics.StepsMade(WorkerId{0}, false), 3);
  EXPECT_EQ(statistics.StepsMade(WorkerId{0}, true), 0);  // by the next one
  JobStatus status;
  statistics.AddTo(status);
  EXPECT_EQ(status.steps_made, 3);
}

TEST(JobStatisticsTest, TheTotalsOfAReplacedWorkerAreKept) {
  JobStatistics statistics;
  statistics.OnWorker(kAnn, {.step = Step{5}, .samples = 100, .bytes_pushed = 7});

  statistics.RetireWorker(kAnn);
  statistics.OnWorker(kAnn, {.step = Step{8}, .samples = 30, .bytes_pushed = 2});

  const JobStatus status = StatusOf(statistics);
  EXPECT_EQ(status.samples, 130U);
  EXPECT_EQ(status.bytes_pushed, 9U);
  EXPECT_EQ(status.step, Step{8});
}

TEST(JobStatisticsTest, AReplacedServersTotalsAreKept) {
  JobStatistics statistics;
  statistics.OnServer(ServerId{0},
                      {.bytes_owned = 50,
                       .chunks = 1,
                       .highest_version = Step{9},
                       .contributors_min = 1,
                       .contributors_max = 2,
                       .bytes_replicated = 7,
                       .bytes_copied = 3});

  statistics.RetireServer(ServerId{0});
  const ServerStats before_it_reports = statistics.Server(ServerId{0});
  statistics.OnServer(
      ServerId{0},
      {.contributors_min = 2, .contributors_max = 2, .bytes_replicated = 2, .bytes_copied = 1});

  const JobStatus status = StatusOf(statistics);
  EXPECT_EQ(before_it_reports.bytes_owned, 0U);
  EXPECT_EQ(status.bytes_replicated, 9U);
  EXPECT_EQ(status.contributors_min, 1U);
  EXPECT_EQ(statistics.ResizeTotals().bytes_copied, 4U);
  EXPECT_EQ(statistics.HighestVersion(), Step{9});
}

TEST(JobStatisticsTest, TheLossOfAStepIsTheMeanWeightedBySamples) {
  JobStatistics statistics;
  statistics.OnWorker(kAnn, {.losses = {{Step{3}, 1.0, 30}}});
  statistics.OnWorker(kBob, {.losses = {{Step{3}, 2.0, 10}}});

  const JobStatus status = StatusOf(statistics);

  ASSERT_EQ(status.losses.size(), 1U);
  EXPECT_DOUBLE_EQ(status.losses[0].loss, 1.25);
  EXPECT_EQ(status.losses[0].samples, 40U);
}

TEST(JobStatisticsTest, RepeatedLossesCountOnce) {
  const LossPoint first = {Step{1}, 1.0, 10};
  const LossPoint second = {Step{2}, 2.0, 10};
  const LossPoint third = {Step{3}, 3.0, 10};
  JobStatistics statistics;
  statistics.OnWorker(kAnn, {.losses = {first}, .losses_end = 1});
  statistics.OnWorker(kBob, {.losses = {first}, .losses_end = 1});
  // The session ended with the report of the second.
  statistics.OnWorker(kAnn, {.losses = {first, second, third}, .losses_end = 3});
  statistics.OnWorker(kAnn, {.losses = {first, second, third}, .losses_end = 3});

  const JobStatus status = StatusOf(statistics);
  ASSERT_EQ(status.losses.size(), 3U);
  EXPECT_EQ(status.losses[0].samples, 20U);
  EXPECT_EQ(status.losses[1].samples, 10U);
  EXPECT_EQ(status.losses[2].samples, 10U);
}

TEST(JobStatisticsTest, LossesOfANewProcessAreItsOwn) {
  JobStatistics statistics;
  statistics.OnWorker(kAnn, {.losses = {{Step{1}, 1.0, 10}}, .losses_end = 1});
  statistics.RetireWorker(kAnn);
  statistics.OnWorker(kAnn, {.losses = {{Step{2}, 2.0, 10}}, .losses_end = 1});

  EXPECT_EQ(StatusOf(statistics).losses.size(), 2U);
}

TEST(JobStatisticsTest, AnUnevenStepCountsOnceWhoeverSaysItHoweverOften) {
  JobStatistics statistics;
  statistics.OnWorker(kAnn, {.uneven_steps = {Step{3}}});
  statistics.OnWorker(kBob, {.uneven_steps = {Step{3}, Step{7}}});
  statistics.RetireWorker(kBob);
  statistics.OnWorker(kAnn, {.uneven_steps = {Step{3}, Step{7}}});

  const JobStatus status = StatusOf(statistics);

  EXPECT_EQ(status.uneven_steps, 2U);
  EXPECT_THAT(status.newest_uneven_steps, ElementsAre(Step{3}, Step{7}));
}

TEST(JobStatisticsTest, UnevenStepsAreAllCountedAndTheNewestListed) {
  JobStatistics statistics;
  for (uint64_t step = 0; step < 1000; ++step) {
    statistics.OnWorker(kAnn, {.uneven_steps = {Step{step}}});
    statistics.OnWorker(kBob, {.uneven_steps = {Step{step - std::min<uint64_t>(step, 300)}}});
  }

  const JobStatus status = StatusOf(statistics);

  EXPECT_EQ(status.uneven_steps, 1000U);
  EXPECT_EQ(status.newest_uneven_steps.size(), JobStatus::kUnevenStepsMax);
  EXPECT_EQ(status.newest_uneven_steps.back(), Step{999});
}

TEST(JobStatisticsTest, LossesStayBoundedAndSpreadOverTheWholeJob) {
  JobStatistics statistics;
  for (uint64_t step = 0; step < 100'000; ++step) {
    statistics.OnWorker(kAnn, {.losses = {{Step{step}, 1.0, 1}}});
  }

  const JobStatus status = StatusOf(statistics);

  EXPECT_LE(status.losses.size(), JobStatus::kLossesMax);
  EXPECT_GE(status.losses.size(), JobStatus::kLossesMax / 2);
  EXPECT_EQ(status.losses.front().step, Step{0});
  EXPECT_GT(status.losses.back().step, Step{99'900});
}

TEST(JobStatisticsTest, ALossThatIsNoNumberIsLeftOut) {
  JobStatistics statistics;

  statistics.OnWorker(kAnn, {.losses = {{Step{1}, std::numeric_limits<double>::quiet_NaN(), 8}}});

  EXPECT_TRUE(StatusOf(statistics).losses.empty());
}

TEST(JobStatisticsTest, ContributorsAreExtremesOverServersWithSteps) {
  JobStatistics statistics;
  statistics.OnServer(ServerId{0}, {.contributors_min = 2, .contributors_max = 3});
  statistics.OnServer(ServerId{1}, {});

  const JobStatus status = StatusOf(statistics);

  EXPECT_EQ(status.contributors_min, 2U);
  EXPECT_EQ(status.contributors_max, 3U);
}

}  // namespace
}  // namespace pushpull
