// SPDX-License-Identifier: Apache-2.0
//
// A job that continues from the values and the optimizer's state that a program has saved
// (docs/decisions/0055-optimizer-state-in-programs.md).
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/sim_job.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr uint32_t kWorkers = 2;
// One of several chunks, of which the last is short; one that is a part of one.
const std::vector<int64_t> kSizes = {3, 150000, 200};

// What a program saves of a tensor.
struct SavedTensor {
  std::vector<float> value;
  std::vector<float> state;
  uint64_t updates = 0;

  friend bool operator==(const SavedTensor&, const SavedTensor&) = default;
};
using SavedJob = std::vector<SavedTensor>;

SimJobOptions Options(uint32_t servers, uint64_t seed) {
  return DeterministicSim(kWorkers, servers, 1, seed);
}

OptimizerSpec Optimizer(OptimizerKind kind) {
  return {.kind = kind, .learning_rate = 0.01, .momentum = kind == OptimizerKind::kSgd ? 0.9 : 0};
}

std::string NameOf(size_t tensor) {
  return "t" + std::to_string(tensor);
}

// Workers whose gradients depend on worker, step and tensor alone. `first_step`: the number of
// steps in what it continues from.
class Training {
 public:
  Training(SimJob& job, OptimizerKind kind, const SavedJob& from, uint64_t first_step)
      : job_(job), kind_(kind), step_(first_step) {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      WorkerNode& node = job_.StartWorker(w);
      node.Join();
      std::vector<TensorRegistration> registrations;
      for (size_t i = 0; i < kSizes.size(); ++i) {
        values_[w].push_back(from[i].value);
        registrations.push_back({.spec = {.name = NameOf(i), .dims = {kSizes[i]}},
                                 .value = values_[w].back(),
                                 .optimizer_state = from[i].state,
                                 .updates = from[i].updates});
        registrations.back().spec.optimizer = Optimizer(kind);
      }
      gradients_[w] = values_[w];
      pending.push_back(node.Register(registrations));
    }
    const absl::Status registered = job_.WaitAll(pending);
    EXPECT_TRUE(registered.ok()) << registered;
  }

  std::vector<std::shared_ptr<PendingOperation>> Begin() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      for (size_t i = 0; i < kSizes.size(); ++i) {
        std::vector<float>& gradient = gradients_[w][i];
        for (size_t k = 0; k < gradient.size(); ++k)
          gradient[k] = 0.1F * static_cast<float>((step_ * 7 + w * 3 + i + k) % 11) - 0.4F;
        auto handle = job_.worker(w).PushPull(NameOf(i), gradient, values_[w][i], {});
        EXPECT_TRUE(handle.ok()) << handle.status();
        if (handle.ok()) pending.push_back(*handle);
      }
    }
    ++step_;
    return pending;
  }

  void StepsUntil(uint64_t step) {
    while (step_ < step) {
      const absl::Status done = job_.WaitAll(Begin());
      ASSERT_TRUE(done.ok()) << done;
    }
  }

  // What the last worker saves; `while_pulling` runs when the pulls are under way.
  SavedJob Save(const std::function<void()>& while_pulling = [] {}) {
    SavedJob saved(kSizes.size());
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (size_t i = 0; i < kSizes.size(); ++i) {
      saved[i].value = values_[1][i];
      saved[i].state.resize(saved[i].value.size() * StateFloatsPerValue(Optimizer(kind_)));
      auto pulled = job_.worker(1).PullOptimizerState(NameOf(i), saved[i].state, Step{0});
      EXPECT_TRUE(pulled.ok()) << pulled.status();
      if (pulled.ok()) pending.push_back(*pulled);
    }
    while_pulling();
    const absl::Status done = job_.WaitAll(pending);
    EXPECT_TRUE(done.ok()) << done;
    for (size_t i = 0; i < pending.size(); ++i) saved[i].updates = pending[i]->updates();
    return saved;
  }

 private:
  SimJob& job_;
  const OptimizerKind kind_;
  uint64_t step_;
  std::vector<std::vector<float>> values_[kWorkers];
  std::vector<std::vector<float>> gradients_[kWorkers];
};

SavedJob Fresh() {
  SavedJob fresh;
  for (const int64_t size : kSizes) fresh.push_back({std::vector<float>(size, 0.5F), {}, 0});
  return fresh;
}

// What a job that nothing disturbs has after so many steps.
SavedJob Undisturbed(OptimizerKind kind, uint64_t steps) {
  SimJob job(Options(2, 1));
  Training training(job, kind, Fresh(), 0);
  training.StepsUntil(steps);
  return training.Save();
}

class SimOptimizerStateTest : public testing::TestWithParam<OptimizerKind> {};

TEST_P(SimOptimizerStateTest, JobContinuesOnOtherServersFromWhatWasSaved) {
  const SavedJob saved = Undisturbed(GetParam(), 5);
  SimJob job(Options(3, 1));
  Training training(job, GetParam(), saved, 5);

  EXPECT_EQ(training.Save(), saved);
  training.StepsUntil(9);

  EXPECT_EQ(saved[0].updates, 5U);
  EXPECT_EQ(training.Save(), Undisturbed(GetParam(), 9));
}

TEST_P(SimOptimizerStateTest, FollowersHaveTheStateThatWorkersSent) {
  const SavedJob saved = Undisturbed(GetParam(), 5);
  const SavedJob expected = Undisturbed(GetParam(), 7);
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    SimJob job(Options(3, seed));
    Training training(job, GetParam(), saved, 5);

    const auto pending = training.Begin();
    job.scheduler().RunFor(std::chrono::microseconds(random() % 8000));
    job.KillServer(static_cast<uint32_t>(random() % 3));
    ASSERT_TRUE(job.WaitAll(pending).ok());
    training.StepsUntil(7);

    EXPECT_EQ(training.Save(), expected);
  }
}

TEST_P(SimOptimizerStateTest, PullOutlivesTheServerThatItAsked) {
  const SavedJob expected = Undisturbed(GetParam(), 4);
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    SimJob job(Options(3, seed));
    Training training(job, GetParam(), Fresh(), 0);
    training.StepsUntil(4);

    const SavedJob saved = training.Save([&] {
      job.scheduler().RunFor(std::chrono::microseconds(random() % 3000));
      job.KillServer(static_cast<uint32_t>(random() % 3));
    });

    EXPECT_EQ(saved, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds,
                         SimOptimizerStateTest,
                         testing::Values(OptimizerKind::kSgd,
                                         OptimizerKind::kAdagrad,
                                         OptimizerKind::kAdam));

TEST(SimOptimizerStateErrorsTest, LengthsThatDoNotFitAreNamed) {
  SimJob job(Options(1, 1));
  WorkerNode& node = job.StartWorker(0);
  node.Join();
  std::vector<float> value(4);
  std::vector<float> state(4);  // Adam has two rows
  TensorRegistration registration{
      .spec = {.name = "w", .dims = {4}}, .value = value, .optimizer_state = state, .updates = 1};
  registration.spec.optimizer = Optimizer(OptimizerKind::kAdam);

  const absl::Status registered = job.Wait(node.Register({&registration, 1}));

  EXPECT_TRUE(absl::IsInvalidArgument(registered)) << registered;
  EXPECT_THAT(registered.message(), HasSubstr("tensor \"w\": a state of 4 floats after 1 updates"));
}

TEST(SimOptimizerStateErrorsTest, WithoutStateThePullIsDoneAtOnce) {
  SimJob job(Options(1, 1));
  const Training training(job, OptimizerKind::kSum, Fresh(), 0);
  std::vector<float> some(3);

  const auto pulled = job.worker(0).PullOptimizerState("t0", {}, Step{0});
  const auto too_long = job.worker(0).PullOptimizerState("t0", some, Step{0});

  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_TRUE((*pulled)->is_done());
  EXPECT_THAT(too_long.status().message(), HasSubstr("has a state of 0 values, got memory for 3"));
}

}  // namespace
}  // namespace pushpull
