// SPDX-License-Identifier: Apache-2.0
//
// Gated steps: every chunk of a step has the same contributors, whoever dies at whatever moment of
// it. Without the gate they may differ, and that is said exactly where they do. Whole jobs of the
// product's own code over a fake clock, stopped after every event of a step.
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/sim_job.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

// More than a step of the jobs here has.
constexpr int kEvents = 150;

struct GateOptions {
  uint32_t workers = 2;
  uint32_t servers = 2;
  uint32_t replication = 0;
  size_t tensors = 2;
  NonFinitePolicy non_finite = NonFinitePolicy::kFail;
  bool gated = true;
  // What each frame takes. A step then has its pushes at the servers after one of it, their answers
  // at the workers after two, is decided after three, known to be after four and applied after
  // five.
  Duration way = Duration::zero();
};

constexpr Duration kWay = std::chrono::milliseconds(10);

// Worker w adds 2^w to all of the tensors, of which "a" has the leading chunk: a value says who has
// contributed to it, and how often.
class GatedJob {
 public:
  explicit GatedJob(const GateOptions& options)
      : options_(options),
        job_({.settings = {.job = "sim",
                           .workers = options.workers,
                           .servers = options.servers,
                           .replication = options.replication,
                           .deterministic = true,
                           .non_finite = options.non_finite},
              .consistency = {.gated = options.gated},
              .network = {.faults = {.delay_min = options.way, .delay_max = options.way}},
              .resend_after = std::chrono::seconds(1)}),
        values_(options.workers, std::vector<std::vector<float>>(options.tensors, {0, 0})) {
    for (std::vector<std::vector<float>>& values : values_) values.front().resize(1);
    EXPECT_TRUE(job_.WaitAll(StartAll()).ok());
  }

  std::shared_ptr<PendingOperation> Start(uint32_t w) {
    job_.StartWorker(w).Join();
    std::vector<TensorRegistration> tensors;
    for (size_t t = 0; t < options_.tensors; ++t) {
      TensorSpec spec{.name = kNames[t],
                      .dims = {static_cast<int64_t>(values_[w][t].size())},
                      .reduction = Reduction::kSum};
      spec.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1};
      tensors.push_back({.spec = spec, .value = values_[w][t]});
    }
    return job_.worker(w).Register(tensors);
  }
  std::vector<std::shared_ptr<PendingOperation>> StartAll() {
    std::vector<std::shared_ptr<PendingOperation>> registrations;
    for (uint32_t w = 0; w < options_.workers; ++w) registrations.push_back(Start(w));
    return registrations;
  }

  std::shared_ptr<PendingOperation> Push(uint32_t w, size_t tensor) {
    return Add(w, std::ldexp(1.0F, static_cast<int>(w)), tensor);
  }
  std::shared_ptr<PendingOperation> Add(uint32_t w, float what, size_t tensor) {
    std::vector<float>& gradient = gradients_.emplace_back(values_[w][tensor].size(), -what);
    return *job_.worker(w).PushPull(kNames[tensor], gradient, values_[w][tensor], {});
  }
  std::shared_ptr<PendingOperation> PushInfinity(uint32_t w, size_t tensor) {
    std::vector<float>& gradient = gradients_.emplace_back(values_[w][tensor].size(), INFINITY);
    return *job_.worker(w).PushPull(kNames[tensor], gradient, values_[w][tensor], {});
  }
  std::vector<std::shared_ptr<PendingOperation>> Push(uint32_t w) {
    std::vector<std::shared_ptr<PendingOperation>> pushes;
    for (size_t t = 0; t < options_.tensors; ++t) pushes.push_back(Push(w, t));
    return pushes;
  }
  std::vector<std::shared_ptr<PendingOperation>> PushAll() {
    std::vector<std::shared_ptr<PendingOperation>> pushes;
    for (uint32_t w = 0; w < options_.workers; ++w) {
      for (auto& push : Push(w)) pushes.push_back(std::move(push));
    }
    return pushes;
  }

  void RunEvents(int count) {
    for (int i = 0; i < count; ++i) job_.scheduler().RunOne();
  }

  // The server that is primary of the leading chunk's shard alone; none where one has
  // both.
  std::optional<uint32_t> LeadingServer() {
    for (uint32_t i = 0; i < options_.servers; ++i) {
      if (job_.has_server(i) && OwnedBytes(i) == sizeof(float)) return i;
    }
    return std::nullopt;
  }

  uint64_t UnevenSteps() {
    job_.scheduler().RunFor(std::chrono::seconds(1));  // the coordinator has heard of them
    return job_.Status().uneven_steps;
  }

  SimJob& job() { return job_; }
  float a(uint32_t w) const { return values_[w][0].front(); }
  // Of the other tensors; one that differs from "a", if there is one.
  float b(uint32_t w) const {
    for (size_t t = 1; t < options_.tensors; ++t) {
      if (values_[w][t].front() != a(w)) return values_[w][t].front();
    }
    return a(w);
  }

 private:
  static constexpr std::array<const char*, 4> kNames = {"a", "b", "c", "d"};

  uint64_t OwnedBytes(uint32_t server) {
    job_.scheduler().RunFor(std::chrono::seconds(2));  // to its next heartbeat
    for (const ServerStatus& status : job_.Status().servers) {
      if (status.server == ServerId{server}) return status.stats.bytes_owned;
    }
    return 0;
  }

  const GateOptions options_;
  SimJob job_;
  std::vector<std::vector<std::vector<float>>> values_;  // by worker and tensor
  std::deque<std::vector<float>> gradients_;
};

// What "a" and "b" have after a step that worker 1 begins and does not survive.
std::pair<float, float> DieAfter(int events, bool is_leading_last) {
  GatedJob both({});
  EXPECT_TRUE(both.job().WaitAll(both.PushAll()).ok());
  auto survivor = both.Push(0);
  for (const size_t tensor : {is_leading_last ? 1U : 0U, is_leading_last ? 0U : 1U})
    both.Push(1, tensor);
  both.RunEvents(events);
  both.job().KillWorker(1);

  EXPECT_TRUE(both.job().WaitAll(survivor).ok());
  const std::pair<float, float> values = {both.a(0), both.b(0)};

  EXPECT_TRUE(both.job().WaitAll(both.Push(0)).ok());
  EXPECT_EQ(both.a(0) - values.first, 1);
  EXPECT_EQ(both.b(0) - values.second, 1);
  EXPECT_EQ(both.UnevenSteps(), 0U);
  return values;
}

TEST(SimGateTest, ADeathAtAnyEventLeavesStepsEven) {
  for (const bool is_leading_last : {false, true}) {
    std::set<float> seen;
    for (int events = 0; events < kEvents; ++events) {
      SCOPED_TRACE(events);
      const auto [a, b] = DieAfter(events, is_leading_last);

      ASSERT_EQ(a, b);
      seen.insert(a);
    }
    // It counts, or it does not.
    EXPECT_EQ(seen, (std::set<float>{3 + 1, 3 + 3}));
  }
}

// Who comes then has their indices, and finds what they had brought.
TEST(SimGateTest, ADeathOfAllAtAnyEventLeavesStepsEven) {
  std::set<float> seen;
  for (int events = 0; events < kEvents; ++events) {
    SCOPED_TRACE(events);
    GatedJob both({});
    ASSERT_TRUE(both.job().WaitAll(both.PushAll()).ok());
    both.PushAll();
    both.RunEvents(events);
    both.job().KillWorker(0);
    both.job().KillWorker(1);
    both.job().scheduler().RunFor(std::chrono::seconds(1));  // the coordinator has noticed

    const auto registrations = both.StartAll();
    ASSERT_TRUE(both.job().Wait(registrations[0]).ok());

    ASSERT_EQ(both.a(0), both.b(0));
    seen.insert(both.a(0));
    // The other one may join at a step that the first has to come to.
    for (int i = 0; i < 20 && !registrations[1]->is_done(); ++i) {
      both.job().scheduler().RunFor(std::chrono::milliseconds(100));
      if (registrations[1]->is_done()) break;
      ASSERT_TRUE(both.job().WaitAll(both.Push(0)).ok());
    }
    ASSERT_TRUE(both.job().Wait(registrations[1]).ok());
    ASSERT_TRUE(both.job().WaitAll(both.PushAll()).ok());
    ASSERT_EQ(both.a(0), both.b(0));
  }
  EXPECT_EQ(seen, (std::set<float>{3, 3 + 3}));
}

// The primary of the leading chunk dies, and with it what it has said of a step; the next one has
// not heard of a worker's death yet and has asks of before it. Whatever it decides, the other
// chunks still have what belongs to it.
TEST(SimGateTest, AnUninformedLeadingPrimaryDecidesNothingDropped) {
  std::set<float> seen;
  for (int death = 0; death < kEvents; death += 3) {
    for (int later = 0; later < 40; later += 4) {
      SCOPED_TRACE(testing::Message() << "worker after " << death << ", server " << later);
      GatedJob three({.workers = 3, .servers = 3, .replication = 1});
      ASSERT_TRUE(three.job().WaitAll(three.PushAll()).ok());
      const std::optional<uint32_t> leading = three.LeadingServer();
      ASSERT_TRUE(leading.has_value());
      std::vector<std::shared_ptr<PendingOperation>> living = three.Push(0);
      for (auto& push : three.Push(1)) living.push_back(std::move(push));
      three.Push(2);
      three.RunEvents(death);
      // What is said of the death takes longer than the next primary's first step.
      three.job().control().SetDelay([] { return std::chrono::milliseconds(20); });
      three.job().KillWorker(2);
      three.RunEvents(later);
      three.job().control().SetDelay([] { return std::chrono::microseconds(100); });
      three.job().KillServer(*leading);

      ASSERT_TRUE(three.job().WaitAll(living).ok());

      ASSERT_EQ(three.a(0), three.b(0));
      ASSERT_EQ(three.a(0), three.a(1));
      ASSERT_EQ(three.b(0), three.b(1));
      seen.insert(three.a(0));
    }
  }
  EXPECT_EQ(seen, (std::set<float>{7 + 3, 7 + 7}));
}

// Worker 1 brings its part of a step and dies; the other's step is done, and the same everywhere.
void DieInAStep(GatedJob& both, int death_ms, std::set<float>& seen) {
  auto survivor = both.Push(0);
  both.Push(1);
  both.job().scheduler().RunFor(std::chrono::milliseconds(death_ms));
  both.job().KillWorker(1);

  ASSERT_TRUE(both.job().WaitAll(survivor).ok());

  ASSERT_EQ(both.a(0), both.b(0));
  seen.insert(both.a(0));
}

// What a server holds does not travel: the shard waits for the end of the step.
TEST(SimGateTest, AMovedShardDropsTheContributionsOfTheDead) {
  std::set<float> seen;
  for (int ahead = 0; ahead < 60; ahead += 2) {
    for (int death = 0; death < 60; death += 4) {
      SCOPED_TRACE(testing::Message() << "move " << ahead << " ms ahead, death after " << death);
      GatedJob both({.tensors = 4, .way = kWay});
      ASSERT_TRUE(both.job().WaitAll(both.PushAll()).ok());
      ASSERT_TRUE(both.job().Resize(1).ok());
      both.job().scheduler().RunFor(std::chrono::milliseconds(ahead));
      DieInAStep(both, death, seen);
      ASSERT_FALSE(testing::Test::HasFatalFailure());
      ASSERT_TRUE(both.job().WaitAll(both.Push(0)).ok());
      ASSERT_EQ(both.a(0), both.b(0));
      both.job().scheduler().RunFor(std::chrono::seconds(5));
      ASSERT_EQ(both.job().Status().shards_moving, 0U);
    }
  }
  EXPECT_EQ(seen, (std::set<float>{3 + 1, 3 + 3}));
}

// It makes every server primary anew. They still have what they held.
TEST(SimGateTest, ANewCoordinatorDropsTheContributionsOfTheDead) {
  std::set<float> seen;
  for (int ahead = 0; ahead < 110; ahead += 3) {
    for (int death = 0; death < 60; death += 5) {
      SCOPED_TRACE(testing::Message() << "lost " << ahead << " ms ahead, death after " << death);
      GatedJob both({.tensors = 4, .way = kWay});
      ASSERT_TRUE(both.job().WaitAll(both.PushAll()).ok());
      both.job().KillCoordinator();
      both.job().StartCoordinator();
      both.job().scheduler().RunFor(std::chrono::milliseconds(ahead));
      DieInAStep(both, death, seen);
      ASSERT_FALSE(testing::Test::HasFatalFailure());
    }
  }
  EXPECT_EQ(seen, (std::set<float>{3 + 1, 3 + 3}));
}

// Of a step in which "a" and "b" have taken the same from those who died.
uint64_t ExpectedUneven(const GatedJob& job) {
  return job.a(0) == job.b(0) ? 0 : 1;
}

// Worker 1 dies after `events` of a step of two workers.
void DieWithoutTheGate(GatedJob& both, int events, bool is_leading_last) {
  ASSERT_TRUE(both.job().WaitAll(both.PushAll()).ok());
  auto survivor = both.Push(0);
  for (const size_t tensor : {is_leading_last ? 1U : 0U, is_leading_last ? 0U : 1U})
    both.Push(1, tensor);
  both.RunEvents(events);
  both.job().KillWorker(1);

  ASSERT_TRUE(both.job().WaitAll(survivor).ok());
}

TEST(SimUnevenTest, AStepIsSaidToBeUnevenExactlyWhereItsTensorsDiffer) {
  for (const uint32_t servers : {1U, 2U}) {
    uint64_t uneven = 0;
    for (int events = 0; events < kEvents; ++events) {
      for (const bool is_leading_last : {false, true}) {
        SCOPED_TRACE(testing::Message() << servers << " servers, death after " << events);
        GatedJob both({.servers = servers, .gated = false});
        DieWithoutTheGate(both, events, is_leading_last);
        ASSERT_FALSE(testing::Test::HasFatalFailure());
        const uint64_t expected = ExpectedUneven(both);

        ASSERT_EQ(both.UnevenSteps(), expected);
        ASSERT_TRUE(both.job().WaitAll(both.Push(0)).ok());
        ASSERT_EQ(both.UnevenSteps(), expected);
        ASSERT_THAT(both.job().CoordinatorMetricsText(),
                    HasSubstr(absl::StrCat("pushpull_uneven_steps_total ", expected, "\n")));
        uneven += expected;
      }
    }
    EXPECT_GT(uneven, 0U);
    EXPECT_LT(uneven, 2U * kEvents);
  }
}

// Two workers see it, and both say it.
TEST(SimUnevenTest, AStepIsCountedOnceThoughAServerDiesAfterTheWorker) {
  uint64_t uneven = 0;
  for (int death = 0; death < kEvents; death += 3) {
    for (int later = 0; later < 40; later += 4) {
      SCOPED_TRACE(testing::Message() << "worker after " << death << ", server " << later);
      GatedJob three({.workers = 3, .servers = 3, .replication = 1, .gated = false});
      ASSERT_TRUE(three.job().WaitAll(three.PushAll()).ok());
      std::vector<std::shared_ptr<PendingOperation>> living = three.Push(0);
      for (auto& push : three.Push(1)) living.push_back(std::move(push));
      three.Push(2);
      three.RunEvents(death);
      three.job().KillWorker(2);
      three.RunEvents(later);
      three.job().KillServer(0);

      ASSERT_TRUE(three.job().WaitAll(living).ok());

      ASSERT_EQ(three.UnevenSteps(), ExpectedUneven(three));
      uneven += ExpectedUneven(three);
    }
  }
  EXPECT_GT(uneven, 0U);
}

TEST(SimUnevenTest, AShardThatMovesInTheStepChangesNothingOfThat) {
  uint64_t uneven = 0;
  for (int ahead = 0; ahead < 60; ahead += 3) {
    for (int death = 0; death < 40; death += 5) {
      SCOPED_TRACE(testing::Message() << "move " << ahead << " ms ahead, death after " << death);
      GatedJob both({.tensors = 4, .gated = false, .way = kWay});
      ASSERT_TRUE(both.job().WaitAll(both.PushAll()).ok());
      ASSERT_TRUE(both.job().Resize(1).ok());
      both.job().scheduler().RunFor(std::chrono::milliseconds(ahead));
      auto survivor = both.Push(0);
      both.Push(1, 0);
      both.Push(1, 1);
      both.job().scheduler().RunFor(std::chrono::milliseconds(death));
      both.job().KillWorker(1);

      ASSERT_TRUE(both.job().WaitAll(survivor).ok());

      ASSERT_EQ(both.UnevenSteps(), ExpectedUneven(both));
      uneven += ExpectedUneven(both);
    }
  }
  EXPECT_GT(uneven, 0U);
}

// "b" is published by a server that has only the log entry of the step.
TEST(SimUnevenTest, AFollowerThatTakesOverAnswersWithWhoContributed) {
  for (uint32_t victim = 0; victim < 3; ++victim) {
    for (int later = 0; later < 60; later += 3) {
      SCOPED_TRACE(testing::Message() << "server-" << victim << " dies " << later << " ms later");
      GatedJob three({.workers = 3, .servers = 3, .replication = 1, .gated = false, .way = kWay});
      ASSERT_TRUE(three.job().WaitAll(three.PushAll()).ok());
      std::vector<std::shared_ptr<PendingOperation>> living = three.Push(0);
      for (auto& push : three.Push(1)) living.push_back(std::move(push));
      three.Push(2, 0);
      three.job().scheduler().RunFor(5 * kWay);
      three.job().KillWorker(2);
      three.job().scheduler().RunFor(std::chrono::milliseconds(later));
      three.job().KillServer(victim);

      ASSERT_TRUE(three.job().WaitAll(living).ok());

      ASSERT_NE(three.a(0), three.b(0));
      ASSERT_EQ(three.UnevenSteps(), 1U);
    }
  }
}

// Nobody is left who was answered. The next process finds chunks of two versions, or one version
// with other contributors.
TEST(SimUnevenTest, WhoComesAfterTheDeathOfAllSeesWhatTheyHaveLeft) {
  uint64_t uneven = 0;
  for (int events = 0; events < kEvents; ++events) {
    for (const uint32_t first : {0U, 1U}) {
      SCOPED_TRACE(testing::Message() << "death after " << events << ", first worker-" << first);
      GatedJob both({.gated = false});
      ASSERT_TRUE(both.job().WaitAll(both.PushAll()).ok());
      both.PushAll();
      both.RunEvents(events);
      both.job().KillWorker(first);
      both.job().KillWorker(1 - first);
      both.job().scheduler().RunFor(std::chrono::seconds(1));  // the coordinator has noticed

      ASSERT_TRUE(both.job().Wait(both.Start(0)).ok());
      // Told from what its predecessor had pushed.
      ASSERT_TRUE(both.job().WaitAll({both.Add(0, 4, 0), both.Add(0, 4, 1)}).ok());

      ASSERT_EQ(both.UnevenSteps(), ExpectedUneven(both));
      uneven += ExpectedUneven(both);
    }
  }
  EXPECT_GT(uneven, 0U);
}

// Both have died, and their shard has moved since: what is left is in the copy.
TEST(SimUnevenTest, WhoComesAfterAMoveStillSeesWhoContributed) {
  uint64_t uneven = 0;
  for (int later = 0; later < 30; ++later) {
    SCOPED_TRACE(later);
    GatedJob both({.gated = false, .way = kWay});
    ASSERT_TRUE(both.job().WaitAll(both.PushAll()).ok());
    both.Push(0);
    both.Push(1, 0);
    both.job().scheduler().RunFor(2 * kWay);
    both.job().KillWorker(1);
    both.job().scheduler().RunFor(std::chrono::milliseconds(later));
    both.job().KillWorker(0);
    both.job().scheduler().RunFor(std::chrono::seconds(1));
    ASSERT_TRUE(both.job().Resize(1).ok());
    both.job().scheduler().RunFor(std::chrono::seconds(5));
    ASSERT_EQ(both.job().Status().shards_moving, 0U);

    ASSERT_TRUE(both.job().Wait(both.Start(0)).ok());
    ASSERT_TRUE(both.job().WaitAll({both.Add(0, 4, 0), both.Add(0, 4, 1)}).ok());

    ASSERT_EQ(both.UnevenSteps(), ExpectedUneven(both));
    uneven += ExpectedUneven(both);
  }
  EXPECT_GT(uneven, 0U);
}

TEST(SimUnevenTest, ANewCoordinatorHearsOfTheStepsThatWorkersHaveSeen) {
  for (int events = 0; events < kEvents; ++events) {
    SCOPED_TRACE(events);
    GatedJob both({.gated = false});
    DieWithoutTheGate(both, events, false);
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    if (ExpectedUneven(both) == 0) continue;

    both.job().KillCoordinator();
    both.job().StartCoordinator();

    EXPECT_EQ(both.UnevenSteps(), 1U);
    return;
  }
  FAIL() << "no step was uneven";
}

TEST(SimGateTest, WhatIsLeftOutDoesNotMakeAChunkKeepItsValue) {
  GatedJob both({.non_finite = NonFinitePolicy::kSkip});
  auto survivor = both.Push(0);
  both.PushInfinity(1, 1);
  both.job().scheduler().RunFor(std::chrono::milliseconds(100));
  both.job().KillWorker(1);

  ASSERT_TRUE(both.job().WaitAll(survivor).ok());

  EXPECT_EQ(both.a(0), 1);
  EXPECT_EQ(both.b(0), 1);
}

TEST(SimGateTest, AProgramThatLeavesATensorOutIsToldWhatItWaitsFor) {
  GatedJob both({});

  const absl::Status status = both.job().Wait(both.Push(0, 1));

  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a gated step is applied when all of its 2 tensors are pushed"));
}

}  // namespace
}  // namespace pushpull
