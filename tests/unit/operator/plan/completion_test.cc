// SPDX-License-Identifier: Apache-2.0
//
// The success of a job by spec.restart.successPolicy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/plan/parts.h"
#include "tests/unit/operator/plan/world.h"

namespace pushpull_operator {
namespace {

using testing::Contains;
using testing::ElementsAre;

TEST(CompletionTest, WhereWorker0IsEnoughTheOthersEndAndStayAway) {
  World world(1, 3);
  world.spec().restart.success_policy = pushpull::SuccessPolicy::kWorker0;
  ASSERT_TRUE(world.Start());
  world.Exit("worker-1", 0);
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kRunning);
  world.Take();
  world.events.clear();

  world.Exit("worker-0", 0);
  ASSERT_TRUE(world.Settle());
  EXPECT_THAT(world.Take(), ElementsAre("delete worker-2"));
  EXPECT_EQ(world.status().phase, Phase::kRunning) << "it ends its step";
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kSucceeded);
  EXPECT_EQ(world.Say("Complete"), "True SuccessPolicy");
  EXPECT_EQ(world.Find("Complete")->message,
            "mnist-worker-0 has done its part, which is enough by spec.restart.successPolicy "
            "Worker0");
  EXPECT_EQ(world.status().workers.succeeded, 2);
  EXPECT_THAT(world.events, testing::SizeIs(1)) << "Complete is the only news";
  EXPECT_THAT(world.Take(), testing::Not(Contains("create worker-2")));
}

TEST(CompletionTest, WhereOneIsEnoughNoOtherEndMattersAnyMore) {
  World world(1, 3);
  world.spec().restart.success_policy = pushpull::SuccessPolicy::kAnyWorker;
  world.spec().restart.backoff_limit = 0;
  ASSERT_TRUE(world.Start());

  world.Exit("worker-0", 1);
  world.Exit("worker-1", 0);
  ASSERT_TRUE(world.Settle());
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Complete"), "True SuccessPolicy");
  EXPECT_EQ(world.status().restarts.counted, 0);
}

// A smaller size has released it, and it is desired again: its 0 says nothing of the job.
TEST(CompletionTest, AReleasedWorkersEndIsNoSuccess) {
  World world(1, 2);
  world.spec().restart.success_policy = pushpull::SuccessPolicy::kAnyWorker;
  ASSERT_TRUE(world.Start());
  world.Exit("worker-1", 0);
  world.seen.coordinator->workers[1] = {.was_released = true};
  world.Take();

  ASSERT_TRUE(world.Settle());

  EXPECT_THAT(world.Take(), ElementsAre("delete worker-1"));
  EXPECT_EQ(world.status().phase, Phase::kRunning);
}

// The pod may be gone by the time: then the coordinator says so.
TEST(CompletionTest, ADoneWorkerWithoutAPodIsEnoughAsWell) {
  World world(1, 2);
  world.spec().restart.success_policy = pushpull::SuccessPolicy::kWorker0;
  ASSERT_TRUE(world.Start());
  world.Exit("worker-0", 0);
  world.Vanish("worker-0");

  ASSERT_TRUE(world.Settle());
  world.VanishDeleted();
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.Say("Complete"), "True SuccessPolicy");
}

TEST(CompletionTest, TheLastSaveComesWhenTheOtherWorkersHaveGone) {
  World world(1, 2);
  world.spec().restart.success_policy = pushpull::SuccessPolicy::kWorker0;
  world.spec().checkpoint.emplace().claim = "c";
  ASSERT_TRUE(world.Start());
  world.Exit("worker-0", 0);
  ASSERT_TRUE(world.Settle());

  world.VanishDeleted();
  world.seen.coordinator->workers[1].is_alive = true;  // its connection has not closed yet
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kRunning);
  world.seen.coordinator->workers[1] = {.was_released = true};
  world.seen.coordinator->saves_requested = 1;
  ASSERT_TRUE(world.Settle());
  EXPECT_EQ(world.status().phase, Phase::kRunning);
  world.seen.coordinator->saves_finished = 1;
  ASSERT_TRUE(world.Settle());

  EXPECT_EQ(world.status().phase, Phase::kSucceeded);
}

}  // namespace
}  // namespace pushpull_operator
