// SPDX-License-Identifier: Apache-2.0
//
// State that programs keep themselves (docs/decisions/0096-state-of-programs.md), in whole
// simulated jobs: whenever a save is ordered, whatever each worker has decided by then, and whoever
// dies meanwhile, a complete checkpoint has the state of exactly its step.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/memory_file_system.h"
#include "tests/fakes/sim_job.h"
#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

using testing::Each;

constexpr uint32_t kWorkers = 3;
constexpr size_t kValues = 1000;
constexpr size_t kStateValues = 100'000;  // two chunks

SimJobOptions Options(uint64_t seed, MemoryFileSystem& files) {
  SimJobOptions options{
      .settings = {.job = "sim", .workers = kWorkers, .servers = 2, .replication = 0},
      .seed = seed};
  options.network.faults.delay_max = std::chrono::milliseconds(2);
  options.checkpoint = CheckpointPolicy{.folder = "/checkpoints", .every = std::chrono::hours(100)};
  options.files = &files;
  return options;
}

// Workers whose state after step t is t + 1 in each place.
class Fleet {
 public:
  Fleet(SimJob& job, uint64_t seed) : job_(job), random_(seed) {}

  absl::Status Start() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      values_.emplace_back(kValues, 0.0F);
      states_.emplace_back(kStateValues, 0.0F);
      job_.StartWorker(w).Join();
      job_.worker(w).state().Use();
      const std::vector<TensorRegistration> registrations = {
          {.spec = SimTensor("gradient", kValues, OptimizerKind::kSum, Reduction::kMean),
           .value = values_[w]},
          {.spec = SimTensor("state", kStateValues, OptimizerKind::kSum, Reduction::kMax),
           .value = states_[w],
           .keeps_value = false}};
      pending.push_back(job_.worker(w).Register(registrations));
      workers_.push_back(w);
    }
    absl::Status registered = job_.WaitAll(pending);
    if (registered.ok()) step_ = job_.worker(0).start_step().value();
    return registered;
  }

  absl::Status Step() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    const std::vector<float> gradient(kValues, 1.0F);
    for (const uint32_t w : workers_)
      pending.push_back(*job_.worker(w).PushPull("gradient", gradient, values_[w], {}));
    PUSHPULL_CHECK(job_.WaitAll(pending).ok());
    pending.clear();
    ++step_;
    std::shuffle(workers_.begin(), workers_.end(), random_);
    const std::vector<float> state(kStateValues, static_cast<float>(step_));
    for (const uint32_t w : workers_) {
      // An order may come between the decisions of two workers.
      job_.scheduler().RunFor(std::chrono::milliseconds(random_() % 3));
      const bool has_state = job_.worker(w).state().TakeSave(false);
      num_saves_ += has_state;
      pending.push_back(
          *job_.worker(w).PushPull("state",
                                   has_state ? ConstTensorValues(state) : ConstTensorValues(),
                                   {},
                                   {.has_gradient = has_state}));
    }
    return job_.WaitAll(pending);
  }

  void Kill() {
    job_.KillWorker(workers_.back());
    workers_.pop_back();
  }

  uint64_t step() const { return step_; }
  uint64_t num_saves() const { return num_saves_; }
  const std::vector<float>& received() const { return states_[0]; }

 private:
  SimJob& job_;
  std::mt19937_64 random_;
  std::vector<uint32_t> workers_;
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<float>> states_;
  uint64_t step_ = 0;
  uint64_t num_saves_ = 0;
};

class SimProgramStateTest : public testing::TestWithParam<uint64_t> {};

TEST_P(SimProgramStateTest, ACompleteCheckpointHasTheStateOfItsStep) {
  const uint64_t seed = GetParam();
  std::mt19937_64 random(seed);
  MemoryFileSystem files;
  uint64_t saved = 0;
  {
    SimJob job(Options(seed, files));
    Fleet fleet(job, seed);
    ASSERT_TRUE(fleet.Start().ok());
    for (uint64_t i = random() % 4; i > 0; --i) ASSERT_TRUE(fleet.Step().ok());
    ASSERT_TRUE(job.SaveCheckpoint().ok());
    const uint64_t dies_in = random() % 12;
    for (uint64_t i = 0; i < 60 && job.Status().checkpoint.finished == 0; ++i) {
      if (i == dies_in) fleet.Kill();
      ASSERT_TRUE(fleet.Step().ok());
    }
    ASSERT_EQ(job.Status().checkpoint.saved, 1U) << job.Status().checkpoint.failure;
    saved = job.Status().checkpoint.step.value();
    EXPECT_LE(fleet.num_saves(), 5 * kWorkers) << "it is pushed in the steps before a checkpoint";
  }
  SimJob job(Options(seed, files));
  Fleet restored(job, seed);

  ASSERT_TRUE(restored.Start().ok());

  EXPECT_EQ(restored.step(), saved);
  EXPECT_THAT(restored.received(), Each(static_cast<float>(saved)));
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimProgramStateTest, testing::Range<uint64_t>(1, 41));

}  // namespace
}  // namespace pushpull
