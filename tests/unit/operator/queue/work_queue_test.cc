// SPDX-License-Identifier: Apache-2.0
#include "operator/queue/work_queue.h"

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/fake_pausing_time.h"

namespace pushpull_operator {
namespace {

using pushpull::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;

Deadline Soon() {
  return Deadline::After(seconds(20));
}

Deadline Now() {
  return Deadline::After(seconds(0));
}

TEST(WorkQueueTest, TakeReturnsAtTheDeadline) {
  FakePausingTime time;
  WorkQueue queue(time);

  EXPECT_TRUE(absl::IsDeadlineExceeded(queue.Take(Now()).status()));
}

TEST(WorkQueueTest, FailuresBackOffUntilForgotten) {
  FakePausingTime time;
  WorkQueue queue(time);

  EXPECT_EQ(queue.AddRateLimited("a"), 1);
  EXPECT_FALSE(queue.Take(Now()).ok());
  time.Advance(milliseconds(5));
  ASSERT_EQ(*queue.Take(Now()), "a");
  queue.Done("a");
  EXPECT_EQ(queue.AddRateLimited("a"), 2);
  time.Advance(milliseconds(9));
  EXPECT_FALSE(queue.Take(Now()).ok());
  time.Advance(milliseconds(1));
  ASSERT_EQ(*queue.Take(Now()), "a");
  queue.Done("a");
  queue.Forget("a");
  queue.AddRateLimited("a");
  time.Advance(milliseconds(5));
  EXPECT_TRUE(queue.Take(Now()).ok());
}

TEST(WorkQueueTest, ADelayedKeyWakesAWaiter) {
  WorkQueue queue(pushpull::SystemTime());
  queue.AddAfter("far", std::chrono::hours(1));
  std::thread adder([&queue] { queue.AddAfter("near", milliseconds(1)); });

  EXPECT_EQ(*queue.Take(Soon()), "near");
  adder.join();
}

TEST(WorkQueueTest, ShutDownWakesWaiters) {
  FakePausingTime time;
  WorkQueue queue(time);
  std::thread stopper([&queue] { queue.ShutDown(); });

  EXPECT_TRUE(absl::IsCancelled(queue.Take(Soon()).status()));
  stopper.join();
}

TEST(WorkQueueTest, DrainingWaitsForProcessing) {
  FakePausingTime time;
  WorkQueue queue(time);
  queue.Add("a");
  ASSERT_TRUE(queue.Take(Soon()).ok());
  queue.ShutDown();

  EXPECT_TRUE(absl::IsDeadlineExceeded(queue.AwaitDrained(Now())));
  queue.Done("a");
  EXPECT_TRUE(queue.AwaitDrained(Soon()).ok());
}

TEST(WorkQueueTest, FourThreadsShareNoKeyAndLoseNoChange) {
  FakePausingTime time;
  WorkQueue queue(time);
  constexpr int kKeys = 7;
  std::array<std::atomic<int>, kKeys> holders{};
  std::array<std::atomic<int>, kKeys> changes{};
  std::array<std::atomic<int>, kKeys> seen{};
  std::atomic<bool> was_shared = false;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (;;) {
        const absl::StatusOr<std::string> key = queue.Take(Soon());
        if (!key.ok()) return;
        const size_t index = static_cast<size_t>((*key)[0] - 'a');
        if (holders[index]++ != 0) was_shared = true;
        seen[index] = changes[index].load();
        --holders[index];
        queue.Done(*key);
      }
    });
  }

  for (size_t i = 0; i < 10'000; ++i) {
    ++changes[i % kKeys];
    queue.Add(std::string(1, static_cast<char>('a' + i % kKeys)));
  }
  queue.ShutDown();
  for (std::thread& thread : threads) thread.join();

  EXPECT_FALSE(was_shared);
  for (size_t i = 0; i < kKeys; ++i) EXPECT_EQ(seen[i], changes[i]) << i;
}

}  // namespace
}  // namespace pushpull_operator
