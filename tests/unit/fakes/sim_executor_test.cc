// SPDX-License-Identifier: Apache-2.0
//
// The fake clock keeps the promises of Executor that tests build on.
#include "tests/fakes/sim_executor.h"

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SimExecutorTest, TasksOfAllExecutorsRunInTheOrderOfPosting) {
  SimScheduler scheduler;
  SimExecutor a(scheduler);
  SimExecutor b(scheduler);
  std::vector<int> order;
  a.Post([&] {
    order.push_back(1);
    b.Post([&] { order.push_back(3); });
  });
  b.Post([&] { order.push_back(2); });

  scheduler.RunUntilIdle();

  EXPECT_THAT(order, ElementsAre(1, 2, 3));
}

TEST(SimExecutorTest, TimersRunAtTheirTimeAndOnlyThen) {
  SimScheduler scheduler;
  SimExecutor executor(scheduler);
  const SteadyTime start = scheduler.Now();
  std::vector<Duration> ran;
  for (const int delay : {3, 1, 2})
    executor.RunAfter(seconds(delay), [&] { ran.push_back(executor.Now() - start); });

  scheduler.RunUntilIdle();
  EXPECT_THAT(ran, IsEmpty());
  scheduler.RunFor(seconds(2));
  EXPECT_THAT(ran, ElementsAre(seconds(1), seconds(2)));
  EXPECT_EQ(scheduler.Now() - start, seconds(2));
  EXPECT_TRUE(scheduler.RunOne());
  EXPECT_FALSE(scheduler.RunOne());

  EXPECT_THAT(ran, ElementsAre(seconds(1), seconds(2), seconds(3)));
}

TEST(SimExecutorTest, ACancelledTimerDoesNotRun) {
  SimScheduler scheduler;
  SimExecutor executor(scheduler);
  bool has_run = false;
  const Executor::TimerId timer = executor.RunAfter(seconds(1), [&] { has_run = true; });

  executor.Cancel(timer);
  executor.Cancel(timer);
  scheduler.RunFor(seconds(2));

  EXPECT_FALSE(has_run);
}

TEST(SimExecutorTest, RunUntilStopsAtTheConditionOrTheLimit) {
  SimScheduler scheduler;
  SimExecutor executor(scheduler);
  int ticks = 0;
  std::function<void()> tick = [&] {
    ++ticks;
    executor.RunAfter(seconds(1), tick);
  };
  executor.Post(tick);

  EXPECT_TRUE(scheduler.RunUntil([&] { return ticks == 5; }, seconds(10)));
  EXPECT_FALSE(scheduler.RunUntil([&] { return ticks == 100; }, seconds(10)));
  EXPECT_EQ(ticks, 15);
}

TEST(SimExecutorTest, TasksOfADestroyedExecutorNeverRun) {
  SimScheduler scheduler;
  SimExecutor other(scheduler);
  const auto held = std::make_shared<int>(0);
  bool has_run = false;
  {
    SimExecutor executor(scheduler);
    executor.Post([&has_run, held] { has_run = true; });
  }
  EXPECT_EQ(held.use_count(), 1);

  other.Post([] {});
  scheduler.RunUntilIdle();

  EXPECT_FALSE(has_run);
}

}  // namespace
}  // namespace pushpull
