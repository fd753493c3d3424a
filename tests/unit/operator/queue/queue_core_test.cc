// SPDX-License-Identifier: Apache-2.0
#include "operator/queue/queue_core.h"

#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/queue/backoff.h"

namespace pushpull_operator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

constexpr pushpull::SteadyTime kNow{seconds(100)};

// Takes and finishes all that is ready.
std::vector<std::string> TakeAll(QueueCore& queue, pushpull::SteadyTime now = kNow) {
  std::vector<std::string> keys;
  while (std::optional<std::string> key = queue.Take(now)) {
    keys.push_back(*key);
    queue.Done(*key);
  }
  return keys;
}

TEST(QueueCoreTest, KeysAreHandedOutOnceInOrder) {
  QueueCore queue;
  for (const char* key : {"a", "b", "a", "c", "b"}) queue.Add(key);

  EXPECT_THAT(TakeAll(queue), ElementsAre("a", "b", "c"));
}

TEST(QueueCoreTest, AKeyAddedInProcessingIsHandedOutAfterDone) {
  QueueCore queue;
  queue.Add("a");
  ASSERT_EQ(queue.Take(kNow), "a");
  queue.Add("a");
  queue.Add("a");

  EXPECT_EQ(queue.Take(kNow), std::nullopt);
  queue.Done("a");
  EXPECT_THAT(TakeAll(queue), ElementsAre("a"));
}

TEST(QueueCoreTest, ADelayedKeyIsReadyAtItsEarliestTime) {
  QueueCore queue;
  queue.AddAt("a", kNow + seconds(5));
  queue.AddAt("a", kNow + seconds(2));
  queue.AddAt("a", kNow + seconds(9));

  EXPECT_EQ(queue.next_due(), kNow + seconds(2));
  EXPECT_EQ(queue.Take(kNow + seconds(1)), std::nullopt);
  EXPECT_THAT(TakeAll(queue, kNow + seconds(2)), ElementsAre("a"));
  EXPECT_THAT(TakeAll(queue, kNow + seconds(60)), ElementsAre());
}

TEST(QueueCoreTest, ADelayedKeyInProcessingIsHandedOutAgain) {
  QueueCore queue;
  queue.Add("a");
  ASSERT_EQ(queue.Take(kNow), "a");
  queue.AddAt("a", kNow + seconds(1));

  EXPECT_EQ(queue.Take(kNow + seconds(1)), std::nullopt);
  queue.Done("a");
  EXPECT_EQ(queue.Take(kNow + seconds(1)), "a");
}

TEST(QueueCoreTest, ShutDownDrainsAndAcceptsNoMore) {
  QueueCore queue;
  queue.Add("a");
  queue.Add("b");
  ASSERT_EQ(queue.Take(kNow), "a");
  queue.Add("a");
  queue.AddAt("later", kNow + seconds(1));

  queue.ShutDown();
  queue.Add("c");

  EXPECT_EQ(queue.Take(kNow), "b");
  queue.Done("b");
  EXPECT_FALSE(queue.is_drained());
  queue.Done("a");
  EXPECT_EQ(queue.Take(kNow + seconds(9)), "a");
  queue.Done("a");
  EXPECT_TRUE(queue.is_drained());
}

TEST(QueueCoreTest, RandomSchedulesLoseNoChangeAndShareNoKey) {
  std::minstd_rand random(7);
  QueueCore queue;
  std::set<std::string> in_work;
  std::set<std::string> to_do;  // changed since it was last handed out

  for (int step = 0; step < 20'000; ++step) {
    const std::string key(1, static_cast<char>('a' + random() % 5));
    if (random() % 2 == 0) {
      queue.Add(key);
      to_do.insert(key);
    } else if (random() % 2 == 0 && !in_work.empty()) {
      queue.Done(*in_work.begin());
      in_work.erase(in_work.begin());
    } else if (const std::optional<std::string> taken = queue.Take(kNow)) {
      ASSERT_TRUE(in_work.insert(*taken).second);
      ASSERT_EQ(to_do.erase(*taken), 1u);
    }
  }

  for (const std::string& key : in_work) queue.Done(key);
  const std::vector<std::string> rest = TakeAll(queue);
  EXPECT_EQ(std::set<std::string>(rest.begin(), rest.end()), to_do);
}

TEST(KeyBackoffTest, DelaysDoublePerKeyUntilForgotten) {
  KeyBackoff backoff;

  EXPECT_EQ(backoff.Failed("a"), milliseconds(5));
  EXPECT_EQ(backoff.Failed("a"), milliseconds(10));
  EXPECT_EQ(backoff.Failed("b"), milliseconds(5));
  for (int i = 0; i < 100; ++i) backoff.Failed("a");
  EXPECT_EQ(backoff.Failed("a"), seconds(1000));
  backoff.Forget("a");
  EXPECT_EQ(backoff.Failed("a"), milliseconds(5));
}

}  // namespace
}  // namespace pushpull_operator
