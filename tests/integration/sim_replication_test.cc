// SPDX-License-Identifier: Apache-2.0
//
// Replica sets in whole simulated jobs: servers die, come and go while workers train, and the
// result is that of the undisturbed job, bit for bit. A failing case prints its seed and replays.
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/sim_job.h"
#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

constexpr uint32_t kWorkers = 3;
// Two chunks, one chunk and less: they land on different shards, servers and lanes.
const std::vector<int64_t> kSizes = {300'000, 7, 1000, 64, 5};

std::vector<TensorSpec> Specs(OptimizerKind kind, Reduction reduction) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < kSizes.size(); ++i) {
    TensorSpec spec{.name = "t" + std::to_string(i), .dims = {kSizes[i]}};
    spec.reduction = reduction;
    spec.optimizer.kind = kind;
    spec.optimizer.learning_rate = 0.01;
    specs.push_back(spec);
  }
  return specs;
}

// A job whose workers push gradients that depend on worker, step and tensor alone.
class Trainer {
 public:
  Trainer(SimJob& job, OptimizerKind kind, Reduction reduction = Reduction::kMean)
      : job_(job), specs_(Specs(kind, reduction)) {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      WorkerNode& node = job_.StartWorker(w);
      node.Join();
      std::vector<TensorRegistration> registrations;
      for (const TensorSpec& spec : specs_)
        values_[w].emplace_back(static_cast<size_t>(spec.dims[0]), 0.5F);
      gradients_[w] = values_[w];
      for (size_t i = 0; i < specs_.size(); ++i)
        registrations.push_back({.spec = specs_[i], .value = values_[w][i]});
      pending.push_back(node.Register(registrations));
    }
    EXPECT_TRUE(job_.WaitAll(pending).ok());
  }

  // Begins the next step of every worker.
  std::vector<std::shared_ptr<PendingOperation>> Begin() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      for (size_t i = 0; i < specs_.size(); ++i) {
        const float gradient = 0.1F * static_cast<float>((step_ * 7 + w * 3 + i) % 11) - 0.4F;
        std::fill(gradients_[w][i].begin(), gradients_[w][i].end(), gradient);
        auto handle = job_.worker(w).PushPull(specs_[i].name, gradients_[w][i], values_[w][i], {});
        EXPECT_TRUE(handle.ok()) << handle.status();
        if (handle.ok()) pending.push_back(*handle);
      }
    }
    ++step_;
    return pending;
  }

  absl::Status Steps(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      absl::Status done = job_.WaitAll(Begin());
      if (!done.ok()) return done;
    }
    return absl::OkStatus();
  }

  // The job's values as its servers have them now.
  std::vector<std::vector<float>> Pull() {
    std::vector<std::vector<float>> values;
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (const TensorSpec& spec : specs_)
      values.emplace_back(static_cast<size_t>(spec.dims[0]), -1.0F);
    for (size_t i = 0; i < specs_.size(); ++i) {
      auto handle = job_.worker(0).Pull(specs_[i].name, values[i], Step{step_});
      EXPECT_TRUE(handle.ok()) << handle.status();
      if (handle.ok()) pending.push_back(*handle);
    }
    EXPECT_TRUE(job_.WaitAll(pending).ok());
    return values;
  }

  const std::vector<std::vector<float>>& values(uint32_t worker) const {
    return values_.at(worker);
  }

 private:
  SimJob& job_;
  const std::vector<TensorSpec> specs_;
  uint64_t step_ = 0;
  std::map<uint32_t, std::vector<std::vector<float>>> values_;
  std::map<uint32_t, std::vector<std::vector<float>>> gradients_;
};

SimJobOptions Options(uint32_t servers, uint32_t replication, uint64_t seed) {
  return DeterministicSim(kWorkers, servers, replication, seed);
}

std::vector<std::vector<float>> Undisturbed(OptimizerKind kind, uint64_t steps) {
  SimJob job(Options(2, 0, 1));
  Trainer trainer(job, kind);
  EXPECT_TRUE(trainer.Steps(steps).ok());
  return trainer.values(0);
}

// Runs the job until all operations are done and, where `must_settle`, every shard has its desired
// members.
::testing::AssertionResult RunToEnd(SimJob& job,
                                    uint32_t wanted,
                                    const std::vector<std::shared_ptr<PendingOperation>>& pending,
                                    bool must_settle) {
  const auto is_done = [&] {
    KeepServers(job, wanted);
    const bool all_done =
        std::all_of(pending.begin(), pending.end(), [](const auto& one) { return one->is_done(); });
    return all_done && (!must_settle || job.Status().shards_moving == 0);
  };
  if (!job.scheduler().RunUntil(is_done, std::chrono::minutes(2))) {
    return ::testing::AssertionFailure() << "stuck with " << job.Status().shards_moving
                                         << " shards moving; " << job.Status().failure;
  }
  for (const auto& one : pending) {
    const absl::Status status = one->Wait(Deadline::After(Duration::zero()));
    if (!status.ok()) return ::testing::AssertionFailure() << status;
  }
  return ::testing::AssertionSuccess();
}

TEST(SimReplicationTest, FollowersChangeNothingInTheResult) {
  SimJob job(Options(3, 2, 1));
  Trainer trainer(job, OptimizerKind::kAdam);

  ASSERT_TRUE(trainer.Steps(20).ok());

  EXPECT_EQ(trainer.values(0), Undisturbed(OptimizerKind::kAdam, 20));
  EXPECT_EQ(trainer.values(2), trainer.values(0));
}

TEST(SimReplicationTest, FollowersHaveTheSumsThatBecameValues) {
  for (uint32_t killed = 0; killed < 3; ++killed) {
    SimJob job(Options(3, 1, 1));
    Trainer trainer(job, OptimizerKind::kSum, Reduction::kSum);
    ASSERT_TRUE(trainer.Steps(5).ok());

    job.KillServer(killed);
    ASSERT_TRUE(RunToEnd(job, 3, {}, true));

    EXPECT_EQ(trainer.Pull(), trainer.values(0)) << "server " << killed;
  }
}

TEST(SimReplicationTest, AServerThatDiesTakesNothingWithIt) {
  constexpr uint64_t kSteps = 12;
  const auto expected = Undisturbed(OptimizerKind::kAdam, kSteps);
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    SimJob job(Options(3, 1, seed));
    Trainer trainer(job, OptimizerKind::kAdam);
    const uint64_t killed_in = random() % kSteps;
    for (uint64_t step = 0; step < kSteps; ++step) {
      const auto pending = trainer.Begin();
      if (step == killed_in) {
        job.scheduler().RunFor(std::chrono::microseconds(random() % 8000));
        job.KillServer(static_cast<uint32_t>(random() % 3));
      }
      ASSERT_TRUE(RunToEnd(job, random() % 2 == 0 ? 3 : 0, pending, false)) << "step " << step;
    }

    EXPECT_EQ(trainer.values(1), expected);
  }
}

TEST(SimReplicationTest, ResizingChangesNothingInTheResult) {
  constexpr uint64_t kSteps = 25;
  const auto expected = Undisturbed(OptimizerKind::kAdam, kSteps);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    SimJob job(Options(2, 0, seed));
    Trainer trainer(job, OptimizerKind::kAdam);
    uint32_t wanted = 2;
    for (uint64_t step = 0; step < kSteps; ++step) {
      const auto pending = trainer.Begin();
      if (step % 4 == 1) {
        job.scheduler().RunFor(std::chrono::microseconds(random() % 8000));
        wanted = 1 + static_cast<uint32_t>(random() % 4);
        ASSERT_TRUE(job.Resize(wanted).ok());
      }
      ASSERT_TRUE(RunToEnd(job, wanted, pending, step % 8 == 7)) << "step " << step;
    }

    EXPECT_EQ(trainer.values(1), expected);
  }
}

// Whether the coordinator has nothing more to do: who was told to end has been replaced.
bool HaveAllGone(SimJob& job, uint32_t wanted, const std::set<std::string>& leaving) {
  for (uint32_t i = 0; i < wanted; ++i) {
    if (!job.has_server(i) || leaving.contains(job.server_address(i))) return false;
  }
  return IsWhole(job, wanted);
}

struct Leavers {
  uint32_t replication = 0;
  uint32_t servers = 2;
  uint32_t at_once = 1;
  bool loses_coordinator = false;
};

// Without replication every death would end the job.
void ExpectThatLeavingChangesNothing(const Leavers& leavers) {
  constexpr uint64_t kSteps = 15;
  const auto expected = Undisturbed(OptimizerKind::kAdam, kSteps);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    SimJob job(Options(leavers.servers, leavers.replication, seed));
    Trainer trainer(job, OptimizerKind::kAdam);
    std::set<std::string> leaving;
    const uint64_t leave_in = random() % (kSteps - 1);
    for (uint64_t step = 0; step < kSteps; ++step) {
      const auto pending = trainer.Begin();
      job.scheduler().RunFor(std::chrono::microseconds(random() % 8000));
      for (uint32_t i = 0; step == leave_in && i < leavers.at_once; ++i) {
        const uint32_t leaver = (static_cast<uint32_t>(seed) + i) % leavers.servers;
        leaving.insert(job.server_address(leaver));
        job.LeaveServer(leaver);
        job.scheduler().RunFor(std::chrono::microseconds(random() % 3000));
      }
      if (step == leave_in && leavers.loses_coordinator) {
        job.KillCoordinator();
        job.StartCoordinator();
      }
      ASSERT_TRUE(RunToEnd(job, leavers.servers, pending, false)) << "step " << step;
    }

    EXPECT_EQ(trainer.values(1), expected);
    EXPECT_TRUE(job.scheduler().RunUntil(
        [&] {
          KeepServers(job, leavers.servers);
          return HaveAllGone(job, leavers.servers, leaving);
        },
        std::chrono::minutes(2)));
    EXPECT_EQ(job.Status().desired_servers, leavers.servers);
    EXPECT_TRUE(job.Status().state_losses.empty());
  }
}

TEST(SimReplicationTest, AServerThatIsToldToEndTakesNothingWithIt) {
  ExpectThatLeavingChangesNothing({.servers = 2});
  ExpectThatLeavingChangesNothing({.servers = 4});
}

TEST(SimReplicationTest, TwoServersThatAreToldToEndTakeNothingWithThem) {
  ExpectThatLeavingChangesNothing({.servers = 4, .at_once = 2});
}

TEST(SimReplicationTest, WhereAllAreToldToEndOneGoesAfterTheOther) {
  ExpectThatLeavingChangesNothing({.servers = 2, .at_once = 2});
  ExpectThatLeavingChangesNothing({.servers = 3, .at_once = 3});
}

TEST(SimReplicationTest, FollowersLeaveAsWell) {
  ExpectThatLeavingChangesNothing({.replication = 1, .servers = 3});
  ExpectThatLeavingChangesNothing({.replication = 1, .servers = 2, .at_once = 2});
}

TEST(SimReplicationTest, AnotherCoordinatorLetsThemGo) {
  ExpectThatLeavingChangesNothing({.servers = 3, .at_once = 2, .loses_coordinator = true});
  ExpectThatLeavingChangesNothing({.replication = 1, .servers = 3, .loses_coordinator = true});
}

TEST(SimReplicationTest, AServerThatDiesDrainingIsReplacedByFollowers) {
  constexpr uint64_t kSteps = 12;
  const auto expected = Undisturbed(OptimizerKind::kAdam, kSteps);
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    SimJob job(Options(3, 1, seed));
    Trainer trainer(job, OptimizerKind::kAdam);
    const uint64_t leave_in = random() % kSteps;
    for (uint64_t step = 0; step < kSteps; ++step) {
      const auto pending = trainer.Begin();
      if (step == leave_in) {
        const auto leaver = static_cast<uint32_t>(random() % 3);
        job.LeaveServer(leaver);
        job.scheduler().RunFor(std::chrono::microseconds(random() % 8000));
        job.KillServer(leaver);
      }
      ASSERT_TRUE(RunToEnd(job, 3, pending, false)) << "step " << step;
    }

    EXPECT_EQ(trainer.values(1), expected);
  }
}

// Deaths, new processes and other sizes at any moment, also while an earlier change is under way.
TEST(SimReplicationTest, AnyScheduleGivesTheSameBits) {
  constexpr uint64_t kSteps = 20;
  const auto expected = Undisturbed(OptimizerKind::kAdam, kSteps);
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto replication = 1 + static_cast<uint32_t>(random() % 2);
    uint32_t wanted = replication + 1 + static_cast<uint32_t>(random() % 2);
    SimJob job(Options(wanted, replication, seed));
    Trainer trainer(job, OptimizerKind::kAdam);
    for (uint64_t step = 0; step < kSteps; ++step) {
      const auto pending = trainer.Begin();
      job.scheduler().RunFor(std::chrono::microseconds(random() % 8000));
      // As many as may die at once die only when what died before is replaced.
      const bool is_whole = job.Status().shards_moving == 0;
      if (is_whole && random() % 3 == 0) {
        for (uint32_t i = 0; i < replication; ++i) {
          const auto victim = static_cast<uint32_t>(random() % wanted);
          if (job.has_server(victim)) job.KillServer(victim);
        }
      }
      if (random() % 4 == 0) {
        wanted = replication + 1 + static_cast<uint32_t>(random() % 3);
        ASSERT_TRUE(job.Resize(wanted).ok());
      }
      ASSERT_TRUE(RunToEnd(job, wanted, pending, false)) << "step " << step;
    }

    EXPECT_EQ(trainer.values(2), expected);
    EXPECT_TRUE(RunToEnd(job, wanted, {}, true));
  }
}

}  // namespace
}  // namespace pushpull
