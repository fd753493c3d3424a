// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/worker_roster.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

RegisterWorker Info(uint32_t index) {
  return {.worker = WorkerId{index}, .incarnation = Incarnation{1}};
}

TEST(WorkerRosterTest, IsCompleteWhenEveryWantedWorkerHasDoneItsPart) {
  WorkerRoster roster;
  roster.OnRegistered(Info(0), SteadyTime{});
  roster.OnRegistered(Info(1), SteadyTime{});

  roster.OnLeft(WorkerId{0}, false);
  const bool with_one = roster.IsComplete(2, SuccessPolicy::kAllWorkers);
  roster.OnLeft(WorkerId{1}, false);

  EXPECT_FALSE(with_one);
  EXPECT_TRUE(roster.IsComplete(2, SuccessPolicy::kAllWorkers));
}

TEST(WorkerRosterTest, AWorkerJoinsWithEachOfItsProcesses) {
  WorkerRoster roster;
  const SteadyTime begin{std::chrono::seconds(100)};
  roster.OnRegistered(Info(0), begin);
  roster.OnGone(WorkerId{0});
  EXPECT_EQ(roster.JoinedAgo(WorkerId{0}, begin + std::chrono::seconds(9)),
            std::chrono::seconds(9));

  roster.OnRegistered(Info(0), begin + std::chrono::seconds(10));

  EXPECT_EQ(roster.JoinedAgo(WorkerId{0}, begin + std::chrono::seconds(11)),
            std::chrono::seconds(1));
}

TEST(WorkerRosterTest, AReleasedWorkerThatIsWantedAgainHasNotDoneItsPart) {
  WorkerRoster roster;
  roster.OnRegistered(Info(0), SteadyTime{});
  roster.OnRegistered(Info(1), SteadyTime{});
  roster.OnLeft(WorkerId{1}, true);
  roster.OnGone(WorkerId{1});

  roster.OnLeft(WorkerId{0}, false);

  EXPECT_FALSE(roster.IsComplete(2, SuccessPolicy::kAllWorkers));
  EXPECT_TRUE(roster.entries().at(WorkerId{1}).was_released);
}

TEST(WorkerRosterTest, ALostWorkerIsKeptForItsReplacement) {
  WorkerRoster roster;
  roster.OnRegistered(Info(0), SteadyTime{});

  roster.OnGone(WorkerId{0});

  EXPECT_FALSE(roster.entries().at(WorkerId{0}).is_alive);
  EXPECT_FALSE(roster.IsComplete(1, SuccessPolicy::kAllWorkers));
}

TEST(WorkerRosterTest, FewerWantedCanCompleteTheJob) {
  WorkerRoster roster;
  roster.OnRegistered(Info(0), SteadyTime{});
  roster.OnRegistered(Info(1), SteadyTime{});
  roster.OnLeft(WorkerId{0}, false);

  EXPECT_FALSE(roster.IsComplete(2, SuccessPolicy::kAllWorkers));
  EXPECT_TRUE(roster.IsComplete(1, SuccessPolicy::kAllWorkers));
}

TEST(WorkerRosterTest, TheOthersCompleteAJobThatGoesOnWithoutAWorker) {
  WorkerRoster roster;
  roster.OnRegistered(Info(0), SteadyTime{});
  roster.LeaveOut({.worker = WorkerId{1}, .why = "cannot join"});

  const bool with_none = roster.IsComplete(2, SuccessPolicy::kAllWorkers);
  roster.OnLeft(WorkerId{0}, false);

  EXPECT_FALSE(with_none);
  EXPECT_TRUE(roster.IsComplete(2, SuccessPolicy::kAllWorkers));
  EXPECT_EQ(roster.entries().at(WorkerId{1}).left_out, "cannot join");
}

TEST(WorkerRosterTest, ALeftOutWorkerMayJoinLater) {
  WorkerRoster roster;
  roster.OnRegistered(Info(0), SteadyTime{});
  roster.LeaveOut({.worker = WorkerId{1}, .why = "cannot join"});
  roster.LeaveOut({.worker = WorkerId{2}, .why = "cannot join"});

  roster.OnRegistered(Info(1), SteadyTime{});
  roster.OnResized(2);

  for (const uint32_t index : {1, 2})
    EXPECT_EQ(roster.entries().at(WorkerId{index}).left_out, "") << index;
}

TEST(WorkerRosterTest, AWorkerThatTakesPartIsNotLeftOut) {
  WorkerRoster roster;
  roster.OnRegistered(Info(0), SteadyTime{});

  roster.LeaveOut({.worker = WorkerId{0}, .why = "cannot join"});

  EXPECT_EQ(roster.entries().at(WorkerId{0}).left_out, "");
}

// The others are ended by who runs the job, and until then they may still push.
TEST(WorkerRosterTest, WhereOneIsEnoughTheOthersAreWaitedFor) {
  WorkerRoster roster;
  for (const uint32_t index : {0, 1, 2}) roster.OnRegistered(Info(index), SteadyTime{});
  roster.OnLeft(WorkerId{0}, false);
  const bool with_two_more = roster.IsComplete(3, SuccessPolicy::kWorker0);
  roster.OnLeft(WorkerId{1}, true);
  const bool with_one_more = roster.IsComplete(3, SuccessPolicy::kWorker0);
  roster.OnGone(WorkerId{2});

  EXPECT_FALSE(with_two_more);
  EXPECT_FALSE(with_one_more);
  EXPECT_TRUE(roster.IsComplete(3, SuccessPolicy::kWorker0));
  EXPECT_FALSE(roster.IsComplete(3, SuccessPolicy::kAllWorkers));
}

TEST(WorkerRosterTest, ThePolicySaysWhichWorkerIsEnough) {
  WorkerRoster roster;
  for (const uint32_t index : {0, 1}) roster.OnRegistered(Info(index), SteadyTime{});
  roster.OnGone(WorkerId{0});
  roster.OnLeft(WorkerId{1}, false);

  EXPECT_FALSE(roster.IsComplete(2, SuccessPolicy::kWorker0));
  EXPECT_TRUE(roster.IsComplete(2, SuccessPolicy::kAnyWorker));
  EXPECT_FALSE(roster.IsComplete(1, SuccessPolicy::kAnyWorker));
}

}  // namespace
}  // namespace pushpull
