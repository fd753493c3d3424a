// SPDX-License-Identifier: Apache-2.0
//
// What backup workers are for: a step ends when enough workers are ready, however long the slowest
// take. A whole job of the product's own code over a fake clock, with random times to compute.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/sim_job.h"

namespace pushpull {
namespace {

constexpr uint32_t kNeeded = 8;
constexpr uint32_t kBackups = 2;
constexpr uint32_t kWorkers = kNeeded + kBackups;
constexpr size_t kTensors = 4;
constexpr uint64_t kSteps = 1000;

// Worker w pushes 2^w to every tensor: the difference between two versions says who contributed.
class StragglingJob {
 public:
  StragglingJob()
      : job_({.settings = {.job = "sim", .workers = kWorkers, .servers = 2},
              .consistency = {.backup_workers = kBackups},
              .network = {.faults = {.delay_max = std::chrono::microseconds(200)}}}) {
    for (uint32_t w = 0; w < kWorkers; ++w) Start(w);
  }

  // Until the job has done the steps. False: it is stuck.
  bool Run() {
    return job_.scheduler().RunUntil(
        [&] {
          for (uint32_t w = 0; w < kWorkers; ++w) Drive(w);
          return ended_.contains(kSteps);
        },
        std::chrono::hours(1));
  }

  // From the end of a step to that of the next, on average; the first begins with the job.
  double MeanStep() const { return ToSeconds(ended_.at(kSteps) - ended_.at(1)) / (kSteps - 1); }

  // From the end of a step to the moment at which as many as are needed are ready in the next.
  double MeanOfNeededReady() const {
    double sum = 0;
    for (uint64_t step = 1; step < kSteps; ++step) {
      std::vector<SteadyTime> ready = ready_.at(step);
      std::sort(ready.begin(), ready.end());
      sum += ToSeconds(ready.at(kNeeded - 1) - ended_.at(step));
    }
    return sum / (kSteps - 1);
  }

  // The same if every worker began every step at its start.
  double MeanOfNeededDraws() {
    double sum = 0;
    for (uint64_t step = 0; step < kSteps; ++step) {
      std::vector<double> draws;
      for (uint32_t w = 0; w < kWorkers; ++w) draws.push_back(Draw());
      std::sort(draws.begin(), draws.end());
      sum += draws[kNeeded - 1];
    }
    return sum / kSteps;
  }

  // Of each version and tensor, as bits.
  const std::map<uint64_t, std::vector<int64_t>>& contributors() const { return contributors_; }

 private:
  struct Worker {
    std::shared_ptr<PendingOperation> registration;
    std::vector<std::shared_ptr<PendingOperation>> pending;
    bool is_registered = false;
    bool is_computing = false;
    std::vector<std::vector<float>> values{kTensors, std::vector<float>(1, 0)};
    std::vector<float> gradient;
  };

  // Seconds that a step takes: lognormal around 0.1, now and then far longer.
  double Draw() { return std::lognormal_distribution<double>(std::log(0.1), 0.5)(random_); }

  void Start(uint32_t w) {
    Worker& worker = workers_[w];
    worker.gradient = {std::ldexp(1.0F, static_cast<int>(w))};
    WorkerNode& node = job_.StartWorker(w);
    node.Join();
    std::vector<TensorRegistration> registrations;
    for (size_t t = 0; t < kTensors; ++t) {
      TensorSpec spec{.name = absl::StrCat("t", t), .dims = {1}, .reduction = Reduction::kSum};
      spec.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1};
      registrations.push_back({.spec = spec, .value = worker.values[t]});
    }
    worker.registration = node.Register(registrations);
  }

  void Drive(uint32_t w) {
    Worker& worker = workers_.at(w);
    const auto is_done = [](const auto& one) { return one->is_done(); };
    if (!worker.is_registered) {
      if (!worker.registration->is_done()) return;
      worker.is_registered = true;
      Compute(w);
      return;
    }
    if (worker.is_computing || !std::all_of(worker.pending.begin(), worker.pending.end(), is_done))
      return;
    for (const auto& one : worker.pending)
      EXPECT_TRUE(one->Wait(Deadline::After(Duration::zero())).ok());
    worker.pending.clear();
    Observe(w);
    Compute(w);
  }

  void Observe(uint32_t w) {
    const uint64_t version = job_.worker(w).next_step().value();
    ended_.try_emplace(version, job_.scheduler().Now());
    std::vector<float> sums;
    for (const std::vector<float>& value : workers_.at(w).values) sums.push_back(value.front());
    const auto [seen, is_first] = sums_.try_emplace(version, sums);
    EXPECT_EQ(seen->second, sums) << "version " << version;
    const auto before = sums_.find(version - 1);
    if (!is_first || before == sums_.end()) return;
    for (size_t t = 0; t < kTensors; ++t)
      contributors_[version].push_back(static_cast<int64_t>(before->second[t] - sums[t]));
  }

  void Compute(uint32_t w) {
    workers_.at(w).is_computing = true;
    executor_.RunAfter(FromSeconds(Draw()), [this, w] {
      Worker& worker = workers_.at(w);
      worker.is_computing = false;
      WorkerNode& node = job_.worker(w);
      ready_[node.next_step().value()].push_back(job_.scheduler().Now());
      for (size_t t = 0; t < kTensors; ++t) {
        auto handle = node.PushPull(absl::StrCat("t", t), worker.gradient, worker.values[t], {});
        ASSERT_TRUE(handle.ok()) << handle.status();
        worker.pending.push_back(*handle);
      }
    });
  }

  static Duration FromSeconds(double seconds) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }

  std::mt19937_64 random_{1};
  SimJob job_;
  SimExecutor executor_{job_.scheduler()};
  std::map<uint32_t, Worker> workers_;
  std::map<uint64_t, std::vector<SteadyTime>> ready_;  // by step: when a worker was
  std::map<uint64_t, SteadyTime> ended_;               // by version: when the first worker had it
  std::map<uint64_t, std::vector<float>> sums_;        // by version: the value of each tensor
  std::map<uint64_t, std::vector<int64_t>> contributors_;
};

TEST(SimBackupTest, AStepTakesAsLongAsTheLastOfTheNeededWorkers) {
  StragglingJob job;

  ASSERT_TRUE(job.Run());

  const double mean = job.MeanStep();
  const double ready = job.MeanOfNeededReady();
  const double draws = job.MeanOfNeededDraws();
  std::printf("%u needed of %u: step %.2f ms, %.4f of their last, %.4f of fresh draws\n",
              kNeeded,
              kWorkers,
              mean * 1e3,
              mean / ready,
              mean / draws);
  EXPECT_LE(mean, 1.05 * ready);
  EXPECT_GE(mean, ready);
  // All but the first version, before which nobody has seen one.
  EXPECT_GE(job.contributors().size(), kSteps - 1);
  for (const auto& [version, of_tensors] : job.contributors()) {
    EXPECT_EQ(std::popcount(static_cast<uint64_t>(of_tensors.front())), int{kNeeded}) << version;
    EXPECT_THAT(of_tensors, testing::Each(of_tensors.front())) << version;
  }
}

// Two workers of which one is needed, with the tensors "a" and "b".
class TwoWorkers {
 public:
  TwoWorkers()
      : job_({.settings = {.job = "sim", .workers = 2, .servers = 2},
              .consistency = {.backup_workers = 1}}) {
    const absl::Status started = job_.WaitAll(StartBoth());
    EXPECT_TRUE(started.ok()) << started;
  }

  // Their registrations.
  std::vector<std::shared_ptr<PendingOperation>> StartBoth() {
    std::vector<std::shared_ptr<PendingOperation>> registrations;
    for (uint32_t w = 0; w < 2; ++w) {
      job_.StartWorker(w).Join();
      std::vector<TensorRegistration> tensors;
      for (size_t t = 0; t < 2; ++t) {
        TensorSpec spec{.name = kNames[t], .dims = {1}, .reduction = Reduction::kSum};
        spec.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1};
        tensors.push_back({.spec = spec, .value = values_[w][t]});
      }
      registrations.push_back(job_.worker(w).Register(tensors));
    }
    return registrations;
  }

  std::vector<std::shared_ptr<PendingOperation>> Push(uint32_t w) {
    std::vector<std::shared_ptr<PendingOperation>> pushes;
    for (size_t t = 0; t < 2; ++t)
      pushes.push_back(*job_.worker(w).PushPull(kNames[t], gradient_, values_[w][t], {}));
    return pushes;
  }
  absl::Status TakeStep(uint32_t w) { return job_.WaitAll(Push(w)); }

  SimJob& job() { return job_; }
  // Of both tensors, at worker `w`.
  std::vector<float> values(uint32_t w) const {
    return {values_[w][0].front(), values_[w][1].front()};
  }
  std::vector<float>& value_of_a(uint32_t w) { return values_[w][0]; }
  const std::vector<float>& gradient() const { return gradient_; }

 private:
  static constexpr std::array<const char*, 2> kNames = {"a", "b"};
  SimJob job_;
  std::vector<std::vector<std::vector<float>>> values_{2, {{0}, {0}}};
  const std::vector<float> gradient_ = {1};
};

TEST(SimBackupTest, AProgramThatLeavesATensorOutIsToldWhatItWaitsFor) {
  TwoWorkers both;

  const absl::Status status =
      both.job().Wait(*both.job().worker(0).PushPull("a", both.gradient(), both.value_of_a(0), {}));

  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("a step goes out when all of its 2 tensors are pushed"));
}

TEST(SimBackupTest, ARejectedWorkerGetsAllOfTheNewestStep) {
  TwoWorkers both;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(both.TakeStep(0).ok());
  std::vector<float> elsewhere(1);
  ASSERT_TRUE(both.job().Wait(*both.job().worker(1).Pull("b", elsewhere, Step{0})).ok());

  ASSERT_TRUE(both.TakeStep(1).ok());

  EXPECT_THAT(elsewhere, testing::ElementsAre(-3));
  EXPECT_THAT(both.values(1), testing::ElementsAre(-3, -3));
  EXPECT_EQ(both.job().worker(1).next_step(), Step{3});
}

// Nobody is left who could push what has been decided, and those who come have the same indices.
TEST(SimBackupTest, AJobGoesOnWhereAllWorkersDieAtAnyMomentOfAStep) {
  int uneven = 0;
  for (int moment = 0; moment < 60; ++moment) {
    SCOPED_TRACE(moment);
    TwoWorkers both;
    ASSERT_TRUE(both.TakeStep(0).ok());
    both.Push(0);
    for (int event = 0; event < moment; ++event) both.job().scheduler().RunOne();
    both.job().KillWorker(0);
    both.job().KillWorker(1);
    both.job().scheduler().RunFor(std::chrono::seconds(1));  // the coordinator has noticed

    const auto registrations = both.StartBoth();
    ASSERT_TRUE(both.job().Wait(registrations[0]).ok());
    const std::vector<float> found = both.values(0);
    ASSERT_TRUE(both.TakeStep(0).ok());

    EXPECT_EQ(both.values(0), (std::vector<float>{found[0] - 1, found[1] - 1}));
    both.job().scheduler().RunFor(std::chrono::seconds(1));  // the coordinator has heard of it
    EXPECT_EQ(both.job().Status().uneven_steps, found[0] == found[1] ? 0U : 1U);
    // The other one joins at a step that the first has to come to.
    for (int i = 0; i < 20 && !registrations[1]->is_done(); ++i) ASSERT_TRUE(both.TakeStep(0).ok());
    ASSERT_TRUE(both.job().Wait(registrations[1]).ok());
    ASSERT_TRUE(both.TakeStep(1).ok());
    uneven += found[0] == found[1] ? 0 : 1;
  }
  EXPECT_GT(uneven, 0);
}

}  // namespace
}  // namespace pushpull
