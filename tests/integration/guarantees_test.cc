// SPDX-License-Identifier: Apache-2.0
//
// What Pushpull promises, one test for each promise: whole simulated jobs, in one thread over a
// fake clock, where everything that the promise names happens at once. The other tests of this
// folder search for exceptions over many seeds and moments; tests/chaos does the same on processes.
#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/sim_job.h"
#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr uint32_t kWorkers = 3;

InprocOptions BadNetwork() {
  InprocOptions network;
  network.faults = {.delay_max = std::chrono::milliseconds(2),
                    .loss = 0.05,
                    .duplication = 0.05,
                    .reordering = 0.1};
  return network;
}

// Runs the job, with `servers` of them there, until the operations are done and every shard is
// in its place.
absl::Status Finish(SimJob& job, uint32_t servers, const SimTrainer::Operations& pending) {
  const auto is_done = [&] {
    KeepServers(job, servers);
    return std::all_of(pending.begin(), pending.end(), [](auto& one) { return one->is_done(); }) &&
           IsWhole(job, servers);
  };
  if (!job.scheduler().RunUntil(is_done, std::chrono::minutes(5)))
    return absl::DeadlineExceededError("not done within five minutes");
  return job.WaitAll(pending);
}

// Any moment of a step.
void RunAWhile(SimJob& job, std::mt19937_64& random) {
  job.scheduler().RunFor(std::chrono::microseconds(random() % 8000));
}

TEST(GuaranteesTest, UpdatesCountOnceUnderRetriesFailoverAndResizing) {
  SimJob job({.settings = {.job = "sim", .workers = kWorkers, .servers = 3, .replication = 1},
              .seed = 1,
              .network = BadNetwork()});
  std::mt19937_64 random(1);
  // Two chunks, and less than one.
  SimTrainer trainer(job,
                     {SimTensor("a", 300'000, OptimizerKind::kSgd, Reduction::kSum),
                      SimTensor("b", 7, OptimizerKind::kSgd, Reduction::kSum)});
  ASSERT_TRUE(trainer.Start(kWorkers).ok());
  uint32_t servers = 3;
  float expected = 0;

  for (int step = 0; step < 60; ++step) {
    const auto gradient = [&](uint32_t worker) {
      return static_cast<float>((step + 3 * static_cast<int>(worker)) % 7 - 3);
    };
    for (uint32_t worker = 0; worker < kWorkers; ++worker) expected -= gradient(worker);
    const auto pending = trainer.PushAll(kWorkers, gradient);
    RunAWhile(job, random);
    const std::vector<std::string> nodes = job.NodeNames();
    if (step % 5 == 1) job.network().Break(nodes[random() % nodes.size()], nodes.back());
    if (step % 5 == 2) job.KillServer(static_cast<uint32_t>(random() % servers));
    if (step % 5 == 3) {
      servers = 2 + static_cast<uint32_t>(random() % 3);
      ASSERT_TRUE(job.Resize(servers).ok());
    }
    ASSERT_TRUE(Finish(job, servers, pending).ok()) << "step " << step;
  }

  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    EXPECT_THAT(trainer.value(worker, 0), Each(expected));
    EXPECT_THAT(trainer.value(worker, 1), Each(expected));
  }
}

TEST(GuaranteesTest, PublishedValuesSurviveReplicationManyDeaths) {
  for (const uint32_t replication : {1U, 2U}) {
    SCOPED_TRACE("replication " + std::to_string(replication));
    const uint32_t servers = replication + 2;
    SimJob job(
        {.settings = {.job = "sim", .workers = 1, .servers = servers, .replication = replication}});
    SimTrainer trainer(job, {SimTensor("w", 300'000, OptimizerKind::kSgd, Reduction::kSum)});
    ASSERT_TRUE(trainer.Start(1).ok());

    for (uint32_t step = 0; step < 2 * servers; ++step) {
      // Published: a worker has seen it.
      ASSERT_TRUE(job.WaitAll(trainer.Push(0, -1)).ok());
      ASSERT_THAT(trainer.value(0), Each(static_cast<float>(step + 1)));
      for (uint32_t i = 0; i < replication; ++i) job.KillServer((step + i) % servers);
      ASSERT_TRUE(Finish(job, servers, {}).ok()) << "step " << step;
    }

    ASSERT_TRUE(job.WaitAll(trainer.Push(0, 0)).ok());
    EXPECT_THAT(trainer.value(0), Each(static_cast<float>(2 * servers)));
  }
}

TEST(GuaranteesTest, AMeanWeightsItsTrueContributorsBySamples) {
  SimJob job({.settings = {.job = "sim", .workers = kWorkers, .servers = 2}});
  SimTrainer trainer(job, {SimTensor("w", 4, OptimizerKind::kSum, Reduction::kMean)});
  ASSERT_TRUE(trainer.Start(kWorkers).ok());

  auto pending = trainer.Push(0, 1, 30);
  for (auto& one : trainer.Push(1, 5, 10)) pending.push_back(std::move(one));
  job.KillWorker(2);  // before it has pushed

  ASSERT_TRUE(job.WaitAll(pending).ok());
  EXPECT_THAT(trainer.value(0), Each((1 * 30 + 5 * 10) / 40.0F));
}

// Worker i adds 1 to tensor i in each of its steps, so that a value tells how many of them it has.
TEST(GuaranteesTest, BoundedStalenessIsABoundAndOwnWritesAreAlwaysSeen) {
  constexpr uint64_t kSteps = 100;
  for (const uint32_t staleness : {0U, 1U, 3U, 8U}) {
    SCOPED_TRACE("staleness " + std::to_string(staleness));
    std::mt19937_64 random(staleness);
    SimJob job({.settings = {.job = "sim", .workers = kWorkers, .servers = 3, .replication = 1},
                .consistency = {.mode = SyncMode::kBounded, .staleness = staleness},
                .network = BadNetwork()});
    std::vector<TensorSpec> specs;
    for (uint32_t i = 0; i < kWorkers; ++i) {
      specs.push_back(SimTensor("w" + std::to_string(i), 4, OptimizerKind::kSgd, Reduction::kSum));
    }
    SimTrainer trainer(job, specs);
    ASSERT_TRUE(trainer.Start(kWorkers).ok());

    std::vector<uint64_t> clocks(kWorkers, 0);  // steps that each has begun
    std::vector<SimTrainer::Operations> reads(kWorkers);
    const auto check = [&](uint32_t reader) {
      const uint64_t clock = clocks[reader] - 1;
      for (uint32_t of = 0; of < kWorkers; ++of) {
        const uint64_t must_see =
            of == reader ? clocks[reader] : clock - std::min<uint64_t>(clock, staleness);
        EXPECT_GE(trainer.value(reader, of)[0], static_cast<float>(must_see))
            << "worker " << reader << " in step " << clock << " misses updates of " << of;
        EXPECT_LE(trainer.value(reader, of)[0], static_cast<float>(clocks[of]));
      }
    };
    const auto is_over = [&] {
      KeepServers(job, 3);
      for (uint32_t worker = 0; worker < kWorkers; ++worker) {
        const bool is_busy = std::any_of(
            reads[worker].begin(), reads[worker].end(), [](auto& one) { return !one->is_done(); });
        if (is_busy || clocks[worker] == kSteps) continue;
        if (!reads[worker].empty()) check(worker);
        if (worker == 0 && random() % 20 != 0) continue;  // a slow one
        const auto gradient = [&](size_t tensor) { return tensor == worker ? -1.0F : 0.0F; };
        reads[worker] = trainer.Push(worker, gradient);
        if (++clocks[worker] == kSteps / 2 && worker == 1) job.KillServer(1);
      }
      return clocks == std::vector<uint64_t>(kWorkers, kSteps);
    };

    ASSERT_TRUE(job.scheduler().RunUntil(is_over, std::chrono::hours(1)));

    for (const auto& last : reads) ASSERT_TRUE(Finish(job, 3, last).ok());
    for (uint32_t worker = 0; worker < kWorkers; ++worker) check(worker);
  }
}

// The values after some steps of Adam whose sums depend on the order of their terms.
std::vector<float> TrainDeterministically(uint64_t seed, bool is_disturbed) {
  SimJob job({.settings = {.job = "sim",
                           .workers = kWorkers,
                           .servers = 3,
                           .replication = 1,
                           .deterministic = true},
              .seed = seed,
              .network = BadNetwork()});
  std::mt19937_64 random(seed);
  SimTrainer trainer(job, {SimTensor("w", 300'000, OptimizerKind::kAdam, Reduction::kMean)});
  EXPECT_TRUE(trainer.Start(kWorkers).ok());
  uint32_t servers = 3;
  for (int step = 0; step < 15; ++step) {
    const auto pending = trainer.PushAll(kWorkers, [&](uint32_t worker) {
      return (worker == 0 ? 0.1F : worker == 1 ? 1e7F : -1e7F) * static_cast<float>(step % 5 + 1);
    });
    RunAWhile(job, random);
    if (is_disturbed && step % 3 == 1) job.KillServer(static_cast<uint32_t>(random() % servers));
    if (is_disturbed && step % 3 == 2) {
      servers = 2 + static_cast<uint32_t>(random() % 3);
      EXPECT_TRUE(job.Resize(servers).ok());
    }
    EXPECT_TRUE(Finish(job, servers, pending).ok()) << "step " << step;
  }
  return trainer.value(1);
}

TEST(GuaranteesTest, DeterministicBitsDoNotDependOnArrivalOrDeaths) {
  const std::vector<float> undisturbed = TrainDeterministically(1, false);

  EXPECT_EQ(TrainDeterministically(2, false), undisturbed);
  EXPECT_EQ(TrainDeterministically(3, true), undisturbed);
  EXPECT_EQ(TrainDeterministically(4, true), undisturbed);
}

TEST(GuaranteesTest, LiveResizingRestartsNoProcessAndLosesNoStep) {
  SimJob job({.settings = {.job = "sim", .workers = kWorkers, .servers = 2}});
  SimTrainer trainer(job, {SimTensor("w", 300'000, OptimizerKind::kSgd, Reduction::kSum)});
  ASSERT_TRUE(trainer.Start(kWorkers).ok());
  const std::string first_server = job.server_address(0);
  int step = 0;

  for (const uint32_t servers : {4U, 3U, 1U, 2U}) {
    ASSERT_TRUE(job.Resize(servers).ok());
    const auto is_settled = [&] {
      const JobStatus status = job.Status();
      return status.shards_moving == 0 && status.servers.size() == servers;
    };
    // Training goes on meanwhile.
    for (bool was_settled = false; !was_settled; ++step) {
      was_settled = is_settled();
      const auto pending = trainer.PushAll(kWorkers, [](uint32_t) { return -1.0F; });
      const auto is_done = [&] {
        KeepServers(job, servers);
        return std::all_of(pending.begin(), pending.end(), [](auto& o) { return o->is_done(); });
      };
      ASSERT_TRUE(job.scheduler().RunUntil(is_done, std::chrono::minutes(1)))
          << "step " << step << " of a job with " << servers << " servers stands still";
      ASSERT_THAT(trainer.value(2), Each(static_cast<float>(3 * (step + 1))));
      ASSERT_LT(step, 10'000) << "never of " << servers << " servers";
    }
  }

  EXPECT_EQ(job.server_address(0), first_server);
  for (const WorkerStatus& worker : job.Status().workers) EXPECT_TRUE(worker.is_member);
}

TEST(GuaranteesTest, TimeoutsNamePeerTensorAndStep) {
  SimJob job({.settings = {.job = "sim", .workers = 1, .servers = 2}});
  SimTrainer trainer(job, {SimTensor("w", 4, OptimizerKind::kSgd, Reduction::kSum)});
  ASSERT_TRUE(trainer.Start(1).ok());
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(job.WaitAll(trainer.Push(0, 1)).ok());
  const std::vector<std::string> nodes = job.NodeNames();
  for (const std::string& node : nodes) {
    if (node != nodes.back()) job.network().Cut(node, nodes.back());
  }

  const auto pending = trainer.Push(0, 1);
  job.scheduler().RunFor(std::chrono::seconds(1));
  const absl::Status status = pending.front()->Wait(Deadline::After(Duration::zero()));

  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("server-"), HasSubstr("tensor \"w\""), HasSubstr("step 3")));
}

}  // namespace
}  // namespace pushpull
