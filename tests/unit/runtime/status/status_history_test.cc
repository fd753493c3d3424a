// SPDX-License-Identifier: Apache-2.0
#include "runtime/status/status_history.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = HistoryEvent::Kind;

constexpr double kBegin = 1'700'000'000;

JobStatus Running(uint64_t step) {
  JobStatus status;
  status.phase = JobPhase::kRunning;
  status.term = Term{1};
  status.view = 1;
  status.desired_servers = 2;
  status.desired_workers = 2;
  for (const uint32_t i : {0U, 1U}) {
    status.servers.push_back({.server = ServerId{i}, .is_alive = true, .pid = 100 + i});
    status.workers.push_back(
        {.worker = WorkerId{i}, .is_alive = true, .is_member = true, .pid = 200 + i});
  }
  status.step = Step{step};
  status.samples = step * 64;
  return status;
}

void Add(StatusHistory& history, double second, JobStatus status) {
  history.Add(kBegin + second, std::make_shared<const JobStatus>(std::move(status)));
}

std::vector<std::string> Texts(const std::vector<HistoryEvent>& events) {
  std::vector<std::string> texts;
  texts.reserve(events.size());
  for (const HistoryEvent& event : events) texts.push_back(NameOf(event.kind) + ": " + event.text);
  return texts;
}

TEST(StatusHistoryTest, APointIsWhatWasAddedInItsInterval) {
  StatusHistory history(StatusHistory::Keeps::kNewest);
  JobStatus first = Running(10);
  for (int i = 0; i < 100; ++i) first.sync_seconds.Add(1.0);
  JobStatus second = first;
  second.step = Step{30};
  second.samples = 30 * 64;
  second.bytes_pushed = 4096;
  for (int i = 0; i < 20; ++i) {
    second.sync_seconds.Add(0.010);
    second.phase_seconds[static_cast<size_t>(SyncPhase::kWait)].Add(0.004);
  }

  Add(history, 0, first);
  Add(history, 2, second);

  ASSERT_EQ(history.points().size(), 1U);
  const HistoryPoint& point = history.points()[0];
  EXPECT_EQ(point.time, kBegin + 2);
  EXPECT_EQ(point.step, Step{30});
  EXPECT_EQ(point.syncs, 20U);
  EXPECT_NEAR(point.sync_seconds, 0.010, 0.0002);
  EXPECT_NEAR(point.phase_seconds[static_cast<size_t>(SyncPhase::kWait)], 0.004, 0.0001);
  EXPECT_EQ(point.samples_per_second, 20 * 64 / 2.0);
  EXPECT_EQ(point.pushed_per_second, 2048);
}

TEST(StatusHistoryTest, StatusesWithinAPeriodMakeOnePoint) {
  StatusHistory history(StatusHistory::Keeps::kNewest);

  for (int i = 0; i <= 40; ++i) Add(history, i * 0.25, Running(static_cast<uint64_t>(i)));

  EXPECT_EQ(history.points().size(), 5U);
}

TEST(StatusHistoryTest, TheOldestPointsGoFirst) {
  StatusHistory history(StatusHistory::Keeps::kNewest);

  for (int i = 0; i < 700; ++i) Add(history, 2 * i, Running(static_cast<uint64_t>(i)));

  EXPECT_EQ(history.points().size(), StatusHistory::kPointsMax);
  EXPECT_EQ(history.points().back().step, Step{699});
  EXPECT_EQ(history.points().front().step, Step{100});
}

TEST(StatusHistoryTest, AHistoryOfAllSpansTheJobWithinItsBound) {
  StatusHistory history(StatusHistory::Keeps::kAll);

  for (int i = 0; i < 5000; ++i) Add(history, 2 * i, Running(static_cast<uint64_t>(i)));

  EXPECT_LE(history.points().size(), StatusHistory::kPointsMax);
  EXPECT_GT(history.points().size(), StatusHistory::kPointsMax / 3);
  EXPECT_LT(history.points().front().step, Step{20});
  EXPECT_GT(history.points().back().step, Step{4950});
  EXPECT_NEAR(history.points()[100].samples_per_second, 32, 0.001);
}

TEST(StatusHistoryTest, ANewCoordinatorsCountsAreNoDifferenceToTheLast) {
  StatusHistory history(StatusHistory::Keeps::kNewest);
  Add(history, 0, Running(10));
  Add(history, 2, Running(20));
  JobStatus recovered = Running(5);
  recovered.term = Term{2};

  Add(history, 4, recovered);
  recovered.samples += 640;
  Add(history, 6, recovered);

  ASSERT_EQ(history.points().size(), 2U);
  EXPECT_EQ(history.points()[1].samples_per_second, 320);
}

TEST(StatusHistoryTest, ASuccessorsHistoryBeginsWithItself) {
  StatusHistory history(StatusHistory::Keeps::kNewest);
  JobStatus recovering;
  recovering.phase = JobPhase::kRecovering;
  recovering.term = Term{3};

  Add(history, 0, recovering);
  JobStatus known = Running(9);
  known.term = Term{3};
  Add(history, 1, known);

  ASSERT_EQ(history.events().size(), 2U);
  EXPECT_EQ(history.events()[0].text, "a new coordinator, term 3");
  EXPECT_EQ(history.events()[1].text, "the new coordinator knows the job again");
}

TEST(StatusHistoryTest, ABeginThatNobodySawIsTold) {
  StatusHistory seen_at_once(StatusHistory::Keeps::kNewest);
  StatusHistory seen_late(StatusHistory::Keeps::kNewest);
  JobStatus status = Running(9);
  status.seconds = 1;
  Add(seen_at_once, 0, status);
  status.seconds = 100;
  Add(seen_late, 0, status);

  ASSERT_EQ(seen_at_once.events().size(), 1U);
  EXPECT_EQ(seen_at_once.events()[0].text, "training begins");
  EXPECT_TRUE(seen_late.events().empty());
}

TEST(StatusHistoryTest, EventsAreBoundedAndHaveTheirTime) {
  StatusHistory history(StatusHistory::Keeps::kNewest);
  for (int i = 0; i < 500; ++i) {
    JobStatus status = Running(1);
    status.desired_workers = i % 2 == 0 ? 2 : 3;
    Add(history, i, std::move(status));
  }

  EXPECT_EQ(history.events().size(), StatusHistory::kEventsMax);
  EXPECT_EQ(history.events().back().time, kBegin + 499);
  EXPECT_EQ(history.events().back().text, "workers: from 2 to 3 requested");
}

TEST(EventsBetweenTest, ABatchIsRequestedThenInForce) {
  JobStatus before = Running(1);
  before.batch = 128;
  JobStatus requested = before;
  requested.global_batch = 512;
  JobStatus in_force = requested;
  in_force.batch = 512;

  EXPECT_THAT(Texts(EventsBetween(before, requested)),
              ElementsAre("change: globalBatch: 512 requested"));
  EXPECT_THAT(Texts(EventsBetween(requested, in_force)),
              ElementsAre("change: globalBatch: steps have 512 samples instead of 128"));
  EXPECT_THAT(Texts(EventsBetween(before, in_force)),
              ElementsAre("change: globalBatch: 512 requested",
                          "change: globalBatch: steps have 512 samples instead of 128"));
  EXPECT_THAT(EventsBetween(in_force, in_force), IsEmpty());
  // Without globalBatch the batch follows the workers.
  EXPECT_THAT(EventsBetween(Running(1), before), IsEmpty());
}

TEST(EventsBetweenTest, NothingHappensBetweenEqualStatuses) {
  EXPECT_THAT(EventsBetween(Running(1), Running(2)), IsEmpty());
}

TEST(EventsBetweenTest, AKilledServerAndItsReplacementAreTold) {
  JobStatus without = Running(2);
  without.servers.pop_back();

  EXPECT_THAT(Texts(EventsBetween(Running(1), without)), ElementsAre("failure: server-1 lost"));
  EXPECT_THAT(Texts(EventsBetween(without, Running(3))), ElementsAre("info: server-1 joined"));
}

TEST(EventsBetweenTest, AQuickReplacementIsTold) {
  JobStatus after = Running(2);
  after.servers[0].pid = 7;
  after.workers[1].pid = 8;

  EXPECT_THAT(
      Texts(EventsBetween(Running(1), after)),
      ElementsAre("failure: server-0 lost and replaced", "failure: worker-1 lost and replaced"));
}

TEST(EventsBetweenTest, MembersThatAreNotDesiredLeaveInOrder) {
  JobStatus after = Running(2);
  after.desired_servers = 1;
  after.servers.pop_back();
  after.workers[1].is_alive = false;
  after.workers[1].was_released = true;
  after.workers[0].is_alive = false;
  after.workers[0].has_left = true;

  EXPECT_THAT(
      Texts(EventsBetween(Running(1), after)),
      ElementsAre("change: server-1 left", "change: worker-1 released", "info: worker-0 done"));
}

TEST(EventsBetweenTest, AThousandMembersAreOneLine) {
  JobStatus after = Running(1);
  for (uint32_t i = 2; i < 1000; ++i)
    after.workers.push_back({.worker = WorkerId{i}, .is_alive = true, .pid = i});

  EXPECT_THAT(Texts(EventsBetween(Running(1), after)),
              ElementsAre("info: worker-2, worker-3, worker-4 and 995 more joined"));
}

TEST(EventsBetweenTest, AResizeIsToldWhenRequestedAndWhenDone) {
  JobStatus requested = Running(2);
  requested.desired_servers = 3;
  requested.resizes.push_back({.step = Step{2}, .from = 2, .to = 3});
  JobStatus settled = requested;
  settled.resizes[0].is_settled = true;
  JobStatus done = requested;
  done.resizes[0] = {.step = Step{2},
                     .from = 2,
                     .to = 3,
                     .is_settled = true,
                     .is_final = true,
                     .seconds = 1.25,
                     .pause_seconds = 0.031,
                     .moved_bytes = 3 << 20};

  EXPECT_THAT(Texts(EventsBetween(Running(1), requested)),
              ElementsAre("change: servers: from 2 to 3 requested"));
  EXPECT_THAT(EventsBetween(requested, settled), IsEmpty());  // its costs are not known yet
  EXPECT_THAT(Texts(EventsBetween(settled, done)),
              ElementsAre("change: servers: from 2 to 3 done in 1.2 s, longest synchronization 31 "
                          "ms, 3.0 MiB moved"));
  EXPECT_THAT(EventsBetween(done, done), IsEmpty());
}

TEST(EventsBetweenTest, ALossOfStateIsToldAtItsBeginAndItsEnd) {
  JobStatus lost = Running(2);
  lost.state_losses.push_back({.servers = {ServerId{1}}, .shards = {ShardId{4}}, .chunks = 1});
  JobStatus repaired = lost;
  repaired.state_losses[0].is_repaired = true;

  const std::vector<HistoryEvent> begin = EventsBetween(Running(1), lost);
  const std::vector<HistoryEvent> end = EventsBetween(lost, repaired);

  ASSERT_EQ(begin.size(), 1U);
  EXPECT_EQ(begin[0].kind, Kind::kFailure);
  EXPECT_THAT(begin[0].text, HasSubstr("lost with server-1; being rebuilt"));
  ASSERT_EQ(end.size(), 1U);
  EXPECT_THAT(end[0].text, HasSubstr("s without them"));
}

TEST(EventsBetweenTest, ANewCoordinatorIsOneEventAndNotAllMembersAnew) {
  JobStatus recovering = Running(1);
  recovering.term = Term{2};
  recovering.phase = JobPhase::kRecovering;
  recovering.servers.clear();
  JobStatus known = Running(2);
  known.term = Term{2};

  EXPECT_THAT(Texts(EventsBetween(Running(1), recovering)),
              ElementsAre("failure: a new coordinator, term 2"));
  EXPECT_THAT(Texts(EventsBetween(recovering, known)),
              ElementsAre("info: the new coordinator knows the job again"));
}

TEST(EventsBetweenTest, AStallIsToldWhenItBeginsAndWhenItEnds) {
  JobStatus stalled = Running(2);
  stalled.stall = Stall{.step = Step{3}, .tensor = "w", .missing = {WorkerId{1}}, .seconds = 10};

  EXPECT_THAT(Texts(EventsBetween(Running(1), stalled)),
              ElementsAre("failure: stalled: step 3 waits for worker-1: no gradient of tensor "
                          "\"w\" for 10.0 s"));
  EXPECT_THAT(Texts(EventsBetween(stalled, Running(4))),
              ElementsAre("info: step 3 waits no longer"));
}

TEST(EventsBetweenTest, CheckpointsModesAndTheEndAreTold) {
  JobStatus after = Running(9);
  after.checkpoint.saved = 1;
  after.checkpoint.step = Step{8};
  after.checkpoint.seconds = 0.2;
  after.checkpoint.failures = 1;
  after.checkpoint.failure = "disk full";
  after.consistency = {.mode = SyncMode::kBounded, .staleness = 3};
  after.phase = JobPhase::kSucceeded;

  EXPECT_THAT(Texts(EventsBetween(Running(1), after)),
              ElementsAre("info: checkpoint of step 8 saved in 0.20 s",
                          "failure: checkpoint failed: disk full",
                          "change: mode: Bounded, staleness 3",
                          "info: succeeded"));
}

}  // namespace
}  // namespace pushpull
