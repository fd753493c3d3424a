// SPDX-License-Identifier: Apache-2.0
//
// Pushes without a gradient (docs/decisions/0092-pushes-without-a-gradient.md) in every mode: a
// step in which nobody has one leaves value, optimizer state and updates as they are, one gradient
// makes it a step like any other, and every worker is told the same. Whole jobs with the product's
// own code over a fake clock; sim_schedule_test.cc adds faults.
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/sim_job.h"
#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr uint32_t kWorkers = 3;
// One chunk, and two.
constexpr int64_t kSizes[] = {40, 100'000};

// What a zero gradient would not leave alone.
TensorSpec Decayed(size_t tensor, Reduction reduction = Reduction::kMean) {
  TensorSpec spec =
      SimTensor("t" + std::to_string(tensor), kSizes[tensor], OptimizerKind::kSgd, reduction);
  spec.optimizer.learning_rate = 0.5;
  spec.optimizer.momentum = 0.5;
  spec.optimizer.weight_decay = 0.25;
  return spec;
}

struct Case {
  std::string name;
  std::function<void(SimJobOptions&)> set = [](SimJobOptions&) {};
  std::function<void(TensorSpec&)> shape = [](TensorSpec&) {};
};

std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.name;
}

SimJobOptions OptionsOf(const Case& one) {
  SimJobOptions options = DeterministicSim(kWorkers, 2, 1);
  options.settings.deterministic = false;
  one.set(options);
  return options;
}

// Workers whose gradients are all ones, or missing.
class Trainer {
 public:
  Trainer(const Case& one, OptimizerKind kind = OptimizerKind::kSgd) : job_(OptionsOf(one)) {
    for (size_t t = 0; t < std::size(kSizes); ++t) {
      TensorSpec spec = Decayed(t);
      if (kind == OptimizerKind::kSum) spec.optimizer = {};
      one.shape(spec);
      specs_.push_back(spec);
    }
  }

  absl::Status Start() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      job_.StartWorker(w).Join();
      std::vector<TensorRegistration> registrations;
      auto& values = values_.emplace_back();
      for (const TensorSpec& spec : specs_)
        values.emplace_back(static_cast<size_t>(spec.dims[0]), 1.0F);
      for (size_t t = 0; t < specs_.size(); ++t)
        registrations.push_back({.spec = specs_[t], .value = values[t]});
      pending.push_back(job_.worker(w).Register(registrations));
    }
    return job_.WaitAll(pending);
  }

  // A step of all workers; `samples_of` is below 0 for one without a gradient. Returns the result
  // for the last tensor of each worker.
  std::vector<bool> Step(const std::function<double(uint32_t worker)>& samples_of) {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      for (size_t t = 0; t < specs_.size(); ++t) {
        const double samples = samples_of(w);
        const PushOptions options{.samples = std::abs(samples), .has_gradient = samples >= 0};
        const std::vector<float>& gradient = gradients_[t];
        auto handle = job_.worker(w).PushPull(
            specs_[t].name,
            options.has_gradient ? ConstTensorValues(gradient) : ConstTensorValues(),
            values_[w][t],
            options);
        EXPECT_TRUE(handle.ok()) << handle.status();
        pending.push_back(*handle);
      }
    }
    EXPECT_TRUE(job_.WaitAll(pending).ok());
    std::vector<bool> had;
    for (uint32_t w = 0; w < kWorkers; ++w)
      had.push_back(pending[(w + 1) * specs_.size() - 1]->has_gradient());
    return had;
  }
  std::vector<bool> StepWithAll() {
    return Step([](uint32_t) { return 1; });
  }
  std::vector<bool> StepWithout() {
    return Step([](uint32_t) { return -1; });
  }

  // Pulled anew.
  std::vector<float> Value(size_t tensor) {
    std::vector<float> value(values_[0][tensor].size());
    EXPECT_TRUE(job_.Wait(*job_.worker(0).Pull(specs_[tensor].name, value, pushpull::Step{})).ok());
    return value;
  }
  struct State {
    std::vector<float> values;
    uint64_t updates = 0;
    bool operator==(const State&) const = default;
  };
  State OptimizerState(size_t tensor) {
    State state{std::vector<float>(values_[0][tensor].size())};
    const auto pull =
        *job_.worker(0).PullOptimizerState(specs_[tensor].name, state.values, pushpull::Step{});
    EXPECT_TRUE(job_.Wait(pull).ok());
    state.updates = pull->updates();
    return state;
  }
  const std::vector<float>& received(uint32_t worker, size_t tensor) const {
    return values_[worker][tensor];
  }
  SimJob& job() { return job_; }

 private:
  SimJob job_;
  std::vector<TensorSpec> specs_;
  std::vector<std::vector<std::vector<float>>> values_;
  const std::vector<std::vector<float>> gradients_ = {std::vector<float>(kSizes[0], 1.0F),
                                                      std::vector<float>(kSizes[1], 1.0F)};
};

class SimGradientTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Modes,
    SimGradientTest,
    testing::Values(
        Case{"Sync"},
        Case{"Deterministic",
             [](SimJobOptions& options) { options.settings.deterministic = true; }},
        Case{"Gated", [](SimJobOptions& options) { options.consistency.gated = true; }},
        Case{"Backup", [](SimJobOptions& options) { options.consistency.backup_workers = 1; }},
        Case{"Async", [](SimJobOptions& options) { options.consistency.mode = SyncMode::kAsync; }},
        Case{"Bounded",
             [](SimJobOptions& options) {
               options.consistency.mode = SyncMode::kBounded;
               options.consistency.staleness = 1;
             }},
        Case{"Joint", [](SimJobOptions& options) { options.local_reduce = LocalReduce::kHost; }},
        Case{.name = "Clipped", .shape = [](TensorSpec& spec) { spec.clip_norm = 1; }},
        Case{.name = "Encoded", .shape = [](TensorSpec& spec) { spec.codec = Codec::kInt8; }},
        Case{.name = "Sum", .shape = [](TensorSpec& spec) { spec.reduction = Reduction::kSum; }},
        Case{.name = "Lossy",
             .set =
                 [](SimJobOptions& options) {
                   options.network.faults.loss = 0.2;
                   options.network.faults.duplication = 0.1;
                 }}),
    [](const auto& one) { return one.param.name; });

TEST_P(SimGradientTest, AStepWithoutAnyGradientLeavesEverythingAsItIs) {
  Trainer trainer(GetParam());
  ASSERT_TRUE(trainer.Start().ok());
  EXPECT_THAT(trainer.StepWithAll(), Each(true));
  const std::vector<float> value = trainer.Value(1);
  const Trainer::State state = trainer.OptimizerState(1);

  EXPECT_THAT(trainer.StepWithout(), Each(false));

  EXPECT_EQ(trainer.Value(1), value);
  EXPECT_EQ(trainer.OptimizerState(1), state);
  EXPECT_THAT(trainer.StepWithAll(), Each(true));
  EXPECT_GT(trainer.OptimizerState(1).updates, state.updates);
}

TEST_P(SimGradientTest, OneGradientMakesAStepLikeAnyOther) {
  const Case& one = GetParam();
  Trainer trainer(one);
  ASSERT_TRUE(trainer.Start().ok());
  const std::vector<bool> had = trainer.Step([](uint32_t worker) { return worker == 1 ? 1 : -1; });

  // In Async and Bounded each push is a step of its own; a backup worker's may not count.
  const bool is_own_step = one.name == "Async" || one.name == "Bounded";
  if (is_own_step) {
    EXPECT_THAT(had, ElementsAre(false, true, false));
  }
  if (is_own_step || one.name == "Backup") return;
  EXPECT_THAT(had, Each(true));
  EXPECT_EQ(trainer.OptimizerState(1).updates, 1U);
  EXPECT_EQ(trainer.received(0, 1), trainer.received(2, 1));
  EXPECT_NE(trainer.received(0, 1)[0], 1.0F);
}

TEST_P(SimGradientTest, TheSumOfNoGradientIsZeros) {
  if (GetParam().name == "Clipped") GTEST_SKIP() << "Sum with clip_norm is refused";
  Trainer trainer(GetParam(), OptimizerKind::kSum);
  ASSERT_TRUE(trainer.Start().ok());
  trainer.StepWithAll();
  ASSERT_THAT(trainer.Value(1), Each(testing::Ne(0)));

  EXPECT_THAT(trainer.StepWithout(), Each(false));

  for (uint32_t w = 0; w < kWorkers; ++w) EXPECT_THAT(trainer.received(w, 1), Each(0)) << w;
}

TEST(SimGradientWeightTest, SamplesOfAWorkerWithoutAGradientCountInTheMean) {
  Trainer trainer(Case{"Sync"}, OptimizerKind::kSum);
  ASSERT_TRUE(trainer.Start().ok());

  trainer.Step([](uint32_t worker) { return worker == 2 ? 3 : -4.5; });

  EXPECT_THAT(trainer.received(0, 0), Each(0.25F));
}

// A step of workers that have no samples left.
TEST(SimGradientWeightTest, AStepWithoutSamplesRunsNoOptimizer) {
  Trainer trainer(Case{"Sync"});
  ASSERT_TRUE(trainer.Start().ok());
  trainer.StepWithAll();
  const std::vector<float> value = trainer.Value(0);
  const Trainer::State state = trainer.OptimizerState(0);

  EXPECT_THAT(trainer.Step([](uint32_t) { return 0; }), Each(false));

  EXPECT_EQ(trainer.Value(0), value);
  EXPECT_EQ(trainer.OptimizerState(0), state);
}

TEST(SimGradientWeightTest, NothingIsSentWithoutAGradient) {
  Trainer trainer(Case{"Sync"});
  ASSERT_TRUE(trainer.Start().ok());
  const auto pushed = [&] {
    std::string lines;
    for (const uint32_t server : {0U, 1U}) {
      const std::string text = trainer.job().ServerMetricsText(server);
      const std::string name = "\npushpull_push_bytes_total";
      for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1))
        lines += text.substr(at, text.find('\n', at + 1) - at);
    }
    return lines;
  };
  trainer.StepWithAll();
  const std::string before = pushed();

  trainer.StepWithout();

  EXPECT_EQ(pushed(), before);
  trainer.StepWithAll();
  EXPECT_NE(pushed(), before);
}

}  // namespace
}  // namespace pushpull
