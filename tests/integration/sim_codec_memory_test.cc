// SPDX-License-Identifier: Apache-2.0
//
// Codecs of which a worker keeps something back, in whole simulated jobs: what is kept back is in
// every checkpoint, a worker that dies takes its own with it and nobody else's, and jobs in which
// it would be lost are refused.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tensor/codec.h"
#include "tests/fakes/memory_file_system.h"
#include "tests/fakes/sim_job.h"
#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kWorkers = 3;
// Two chunks, less than one, and too few values for a codec to save anything.
const std::vector<int64_t> kSizes = {300'000, 1000, 3};
constexpr Codec kWithMemory[] = {Codec::kTopK, Codec::kOneBit};
// What means in float32 leave of whole numbers.
constexpr double kRounding = 0.1;

SimJobOptions Options(uint64_t seed) {
  SimJobOptions options{
      .settings = {.job = "sim", .workers = kWorkers, .servers = 2, .replication = 0},
      .seed = seed};
  options.network.faults.delay_max = std::chrono::milliseconds(2);
  return options;
}

// Workers whose gradients are whole numbers, another at each place; a value is minus the sum of
// all.
class Fleet {
 public:
  Fleet(SimJob& job, Codec codec) : job_(job) {
    for (size_t t = 0; t < kSizes.size(); ++t) {
      specs_.push_back(
          SimTensor("t" + std::to_string(t), kSizes[t], OptimizerKind::kSgd, Reduction::kSum));
      specs_.back().codec = codec;
    }
  }

  absl::Status Start() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      job_.StartWorker(w).Join();
      values_.emplace_back();
      for (const int64_t size : kSizes) values_[w].emplace_back(static_cast<size_t>(size), 0.0F);
      std::vector<TensorRegistration> registrations;
      for (size_t t = 0; t < specs_.size(); ++t)
        registrations.push_back({.spec = specs_[t], .value = values_[w][t]});
      pending.push_back(job_.worker(w).Register(registrations));
    }
    gradients_ = values_;
    absl::Status registered = job_.WaitAll(pending);
    if (registered.ok()) step_ = job_.worker(0).start_step().value();
    return registered;
  }

  absl::Status Step() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      for (size_t t = 0; t < specs_.size(); ++t) {
        std::vector<float>& gradient = gradients_[w][t];
        for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = GradientOf(step_, w, i);
        auto handle = job_.worker(w).PushPull(specs_[t].name, gradient, values_[w][t], {});
        if (!handle.ok()) return handle.status();
        pending.push_back(*handle);
      }
    }
    ++step_;
    return job_.WaitAll(pending);
  }

  uint64_t step() const { return step_; }

  // How far the value is from what it was if nothing had been kept back, at the worst place.
  double Missing() const {
    double most = 0;
    for (size_t t = 0; t < kSizes.size(); ++t) {
      for (size_t i = 0; i < values_[0][t].size(); ++i)
        most = std::max(most, std::abs(values_[0][t][i] - Whole(i)));
    }
    return most;
  }

 private:
  static float GradientOf(uint64_t step, uint32_t worker, size_t i) {
    return static_cast<float>((step * 31 + worker * 17 + i * 7) % 101) - 50;
  }
  double Whole(size_t i) const {
    double sum = 0;
    for (uint64_t step = 0; step < step_; ++step) {
      for (uint32_t w = 0; w < kWorkers; ++w) sum -= GradientOf(step, w, i);
    }
    return sum;
  }

  SimJob& job_;
  std::vector<TensorSpec> specs_;
  uint64_t step_ = 0;
  std::vector<std::vector<std::vector<float>>> values_;
  std::vector<std::vector<std::vector<float>>> gradients_;
};

// Trains until a checkpoint is there, and returns its step.
uint64_t TrainAndSave(const SimJobOptions& options, Codec codec) {
  SimJob job(options);
  Fleet fleet(job, codec);
  EXPECT_TRUE(fleet.Start().ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(fleet.Step().ok());
  EXPECT_TRUE(job.SaveCheckpoint().ok());
  std::map<uint64_t, double> missing = {{fleet.step(), fleet.Missing()}};
  for (int i = 0; i < 40 && job.Status().checkpoint.finished == 0; ++i) {
    EXPECT_TRUE(fleet.Step().ok());
    missing[fleet.step()] = fleet.Missing();
    job.scheduler().RunFor(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(job.Status().checkpoint.saved, 1U) << job.Status().checkpoint.failure;
  const uint64_t saved = job.Status().checkpoint.step.value();
  EXPECT_LT(missing[saved], kRounding);
  EXPECT_GT(missing[saved - 1], 1);
  return saved;
}

TEST(SimCodecMemoryTest, ACheckpointHasEverythingThatWorkersHadKeptBack) {
  for (const Codec codec : kWithMemory) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(ToString(codec) + " seed " + std::to_string(seed));
      MemoryFileSystem files;
      SimJobOptions options = Options(seed);
      options.checkpoint =
          CheckpointPolicy{.folder = "/checkpoints", .every = std::chrono::hours(100)};
      options.files = &files;

      const uint64_t saved = TrainAndSave(options, codec);
      SimJob job(options);
      Fleet restored(job, codec);

      ASSERT_TRUE(restored.Start().ok());
      EXPECT_EQ(restored.step(), saved);
      EXPECT_LT(restored.Missing(), kRounding);
      ASSERT_TRUE(restored.Step().ok());
      EXPECT_GT(restored.Missing(), 1);
    }
  }
}

double SumOf(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

bool AreDone(const SimTrainer::Operations& operations) {
  return std::all_of(operations.begin(), operations.end(), [](const auto& operation) {
    return operation->is_done();
  });
}

TEST(SimCodecMemoryTest, ADeadWorkerLosesItsResidualAndNothingElse) {
  SimJob job(Options(1));
  TensorSpec spec = SimTensor("w", 200, OptimizerKind::kSgd, Reduction::kSum);
  spec.codec = Codec::kTopK;
  SimTrainer trainer(job, {spec});
  ASSERT_TRUE(trainer.Start(kWorkers).ok());
  const auto only_the_last = [](uint32_t worker) { return worker == 2 ? 1.0F : 0.0F; };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(trainer.StepAll(kWorkers, only_the_last).ok());
  // Two of 200 values a step, each the sum of what it is late: 2 x 1, 2 x 2, 2 x 3.
  EXPECT_EQ(SumOf(trainer.value(0)), -12);

  job.KillWorker(2);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(trainer.StepAll(2, only_the_last).ok());
  EXPECT_EQ(SumOf(trainer.value(0)), -12);

  // The others go on until it is one of them, and take its first step with it.
  SimTrainer::Operations others = trainer.PushAll(2, only_the_last);
  const auto run_until_done = [&](const SimTrainer::Operations& awaited) {
    for (int i = 0; i < 1000 && !AreDone(awaited); ++i) {
      job.scheduler().RunFor(std::chrono::milliseconds(1));
      if (AreDone(others)) others = trainer.PushAll(2, only_the_last);
    }
    return AreDone(awaited);
  };
  ASSERT_TRUE(run_until_done({trainer.StartOne(2)}));
  ASSERT_TRUE(run_until_done(trainer.Push(2, 1.0F)));
  EXPECT_EQ(SumOf(trainer.value(2)), -14);
}

TEST(SimCodecMemoryTest, JobsInWhichItWouldBeLostAreRefused) {
  SimJobOptions options = Options(1);
  options.consistency.mode = SyncMode::kAsync;
  SimJob job(options);
  std::vector<float> value(100, 0.0F);
  TensorSpec spec = SimTensor("w", 100, OptimizerKind::kSgd, Reduction::kMean);
  spec.codec = Codec::kTopK;
  const TensorRegistration registration{.spec = spec, .value = value};
  job.StartWorker(0).Join();
  const absl::Status status = job.Wait(job.worker(0).Register({&registration, 1}));
  EXPECT_THAT(std::string(status.message()), HasSubstr("codec topk needs spec.sync.mode Sync"));
}

TEST(SimCodecMemoryTest, SoAreModesOfARunningJob) {
  SimJob job(Options(1));
  TensorSpec spec = SimTensor("w", 100, OptimizerKind::kSgd, Reduction::kMean);
  spec.codec = Codec::kOneBit;
  SimTrainer trainer(job, {spec});
  ASSERT_TRUE(trainer.Start(kWorkers).ok());
  const auto refusal = [&](const ModeChange& change) {
    return std::string(job.SetMode(change).message());
  };
  EXPECT_THAT(refusal({.mode = SyncMode::kAsync}), HasSubstr("codec onebit needs"));
  EXPECT_THAT(refusal({.backup_workers = 1}), HasSubstr("spec.sync.backupWorkers 0, which is 1"));
  EXPECT_THAT(refusal({.gated = true}), HasSubstr("spec.sync.gated"));
  EXPECT_TRUE(job.SetMode({.mode = SyncMode::kSync}).ok());
}

}  // namespace
}  // namespace pushpull
