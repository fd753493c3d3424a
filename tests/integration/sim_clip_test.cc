// SPDX-License-Identifier: Apache-2.0
//
// Clipping by the global norm: training on servers gives what one process with
// torch.nn.utils.clip_grad_norm_ would compute, and steps go on whoever dies at whatever moment.
// Whole jobs of the product's own code over a fake clock.
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/sim_job.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kClipNorm = 2;

// More than a step of the small jobs here has.
constexpr int kEventsOfAStep = 120;

struct ClipTensor {
  const char* name;
  int64_t values;
  bool is_clipped = true;
};

// With 65,536 values a chunk: one, three, two chunks; and one without a limit.
const std::vector<ClipTensor> kLarge = {
    {"a", 10}, {"b", 150'000}, {"free", 5, false}, {"c", 70'000}};
const std::vector<ClipTensor> kSmall = {{"a", 2}, {"b", 3}, {"c", 1}};

OptimizerSpec MomentumSgd() {
  return {.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 0.9};
}
OptimizerSpec DecoupledAdam() {
  return {.kind = OptimizerKind::kAdamW, .learning_rate = 0.01, .weight_decay = 0.01};
}

// Of every other step the norm is above the limit.
float GradientAt(uint32_t worker, uint64_t step, size_t tensor, size_t i, size_t values) {
  const double magnitude = (step % 2 == 0 ? 8.0 : 0.3) / std::sqrt(static_cast<double>(values));
  const double angle = 0.7 * static_cast<double>(i) + 1.3 * static_cast<double>(tensor) +
                       2.1 * static_cast<double>(step) + 0.4 * worker;
  return static_cast<float>(magnitude * std::sin(angle));
}

// The same training in one process, in double.
class Reference {
 public:
  Reference(const std::vector<ClipTensor>& tensors, OptimizerSpec optimizer)
      : tensors_(tensors), optimizer_(optimizer) {
    for (const ClipTensor& tensor : tensors) {
      const auto size = static_cast<size_t>(tensor.values);
      values_.emplace_back(size, 0.0);
      first_.emplace_back(size, 0.0);
      second_.emplace_back(size, 0.0);
    }
  }

  // The gradients of these workers, averaged and clipped. Returns the scale.
  double Step(const std::vector<uint32_t>& workers) {
    double squares = 0;
    for (size_t t = 0; t < tensors_.size(); ++t) {
      if (!tensors_[t].is_clipped) continue;
      for (size_t i = 0; i < values_[t].size(); ++i) squares += std::pow(Mean(workers, t, i), 2);
    }
    const double scale = std::min(1.0, kClipNorm / (std::sqrt(squares) + 1e-6));
    for (size_t t = 0; t < tensors_.size(); ++t) {
      for (size_t i = 0; i < values_[t].size(); ++i)
        Update(t, i, Mean(workers, t, i) * (tensors_[t].is_clipped ? scale : 1));
    }
    ++step_;
    return scale;
  }

  // Of the largest, in proportion to the largest value.
  double DistanceTo(size_t tensor, const std::vector<float>& values) const {
    double distance = 0;
    double largest = 1e-12;
    for (size_t i = 0; i < values.size(); ++i) {
      distance = std::max(distance, std::abs(values_[tensor][i] - values[i]));
      largest = std::max(largest, std::abs(values_[tensor][i]));
    }
    return distance / largest;
  }

 private:
  double Mean(const std::vector<uint32_t>& workers, size_t t, size_t i) const {
    double sum = 0;
    for (const uint32_t worker : workers) sum += GradientAt(worker, step_, t, i, values_[t].size());
    return sum / static_cast<double>(workers.size());
  }
  void Update(size_t t, size_t i, double g) {
    double& value = values_[t][i];
    double& m = first_[t][i];
    double& v = second_[t][i];
    const double rate = optimizer_.learning_rate;
    if (optimizer_.kind == OptimizerKind::kSum) {
      value = g;
    } else if (optimizer_.kind == OptimizerKind::kSgd) {
      m = optimizer_.momentum * m + g;
      value -= rate * m;
    } else {
      const auto updates = static_cast<double>(step_ + 1);
      value *= 1 - rate * optimizer_.weight_decay;
      m = optimizer_.beta1 * m + (1 - optimizer_.beta1) * g;
      v = optimizer_.beta2 * v + (1 - optimizer_.beta2) * g * g;
      value -= rate * (m / (1 - std::pow(optimizer_.beta1, updates))) /
               (std::sqrt(v / (1 - std::pow(optimizer_.beta2, updates))) + optimizer_.epsilon);
    }
  }

  const std::vector<ClipTensor> tensors_;
  const OptimizerSpec optimizer_;
  uint64_t step_ = 0;
  std::vector<std::vector<double>> values_;
  std::vector<std::vector<double>> first_;
  std::vector<std::vector<double>> second_;
};

struct ClipOptions {
  std::vector<ClipTensor> tensors = kSmall;
  OptimizerSpec optimizer = MomentumSgd();
  uint32_t workers = 2;
  uint32_t servers = 2;
  uint32_t replication = 0;
};

class ClippedJob {
 public:
  using Operations = std::vector<std::shared_ptr<PendingOperation>>;

  explicit ClippedJob(const ClipOptions& options)
      : options_(options),
        job_({.settings = {.job = "sim",
                           .workers = options.workers,
                           .servers = options.servers,
                           .replication = options.replication}}),
        values_(options.workers),
        gradients_(options.workers) {
    Operations registrations;
    for (uint32_t w = 0; w < options.workers; ++w) registrations.push_back(Start(w));
    EXPECT_TRUE(job_.WaitAll(registrations).ok());
  }

  std::shared_ptr<PendingOperation> Start(uint32_t w) {
    job_.StartWorker(w).Join();
    values_[w].clear();
    gradients_[w].clear();
    for (const ClipTensor& tensor : options_.tensors) {
      values_[w].emplace_back(static_cast<size_t>(tensor.values), 0.0F);
      gradients_[w].emplace_back(static_cast<size_t>(tensor.values), 0.0F);
    }
    std::vector<TensorRegistration> registrations;
    for (size_t t = 0; t < options_.tensors.size(); ++t) {
      const ClipTensor& tensor = options_.tensors[t];
      TensorSpec spec{.name = tensor.name, .dims = {tensor.values}};
      spec.optimizer = options_.optimizer;
      spec.clip_norm = tensor.is_clipped ? kClipNorm : 0;
      registrations.push_back({.spec = spec, .value = values_[w][t]});
    }
    return job_.worker(w).Register(registrations);
  }

  std::shared_ptr<PendingOperation> Push(uint32_t w, size_t t, uint64_t step) {
    std::vector<float>& gradient = gradients_[w][t];
    for (size_t i = 0; i < gradient.size(); ++i)
      gradient[i] = GradientAt(w, step, t, i, gradient.size());
    return *job_.worker(w).PushPull(options_.tensors[t].name, gradient, values_[w][t], {});
  }
  Operations Push(uint32_t w) {
    const uint64_t step = job_.worker(w).next_step().value();
    Operations pushes;
    for (size_t t = 0; t < options_.tensors.size(); ++t) pushes.push_back(Push(w, t, step));
    return pushes;
  }
  Operations PushAll() {
    Operations pushes;
    for (uint32_t w = 0; w < options_.workers; ++w) {
      for (auto& push : Push(w)) pushes.push_back(std::move(push));
    }
    return pushes;
  }

  void RunEvents(int count) {
    for (int i = 0; i < count; ++i) job_.scheduler().RunOne();
  }

  // All values of the worker are those of the reference, up to rounding.
  void ExpectAt(const Reference& reference, uint32_t w) const {
    for (size_t t = 0; t < options_.tensors.size(); ++t)
      EXPECT_LT(reference.DistanceTo(t, values_[w][t]), 1e-5) << options_.tensors[t].name;
  }

  SimJob& job() { return job_; }
  const std::vector<float>& value(uint32_t w, size_t t) const { return values_[w][t]; }

 private:
  const ClipOptions options_;
  SimJob job_;
  std::vector<std::vector<std::vector<float>>> values_;  // by worker and tensor
  std::vector<std::vector<std::vector<float>>> gradients_;
};

// ---- the same as in one process ----

TEST(SimClipTest, TrainingIsThatOfOneProcess) {
  const OptimizerSpec sum{.kind = OptimizerKind::kSum};
  for (const OptimizerSpec& optimizer : {MomentumSgd(), DecoupledAdam(), sum}) {
    ClippedJob clipped({.tensors = kLarge, .optimizer = optimizer});
    Reference reference(kLarge, optimizer);
    for (uint64_t step = 0; step < 6; ++step) {
      ASSERT_TRUE(clipped.job().WaitAll(clipped.PushAll()).ok());

      const double scale = reference.Step({0, 1});

      EXPECT_EQ(scale < 1, step % 2 == 0) << step;  // on both sides of the limit
      clipped.ExpectAt(reference, 0);
      for (size_t t = 0; t < kLarge.size(); ++t)
        EXPECT_EQ(clipped.value(0, t), clipped.value(1, t));
    }
  }
}

TEST(SimClipTest, ALostServerChangesNoStep) {
  for (const OptimizerSpec& optimizer : {MomentumSgd(), DecoupledAdam()}) {
    for (int events = 0; events < kEventsOfAStep; events += 7) {
      ClippedJob clipped(
          {.tensors = kSmall, .optimizer = optimizer, .servers = 3, .replication = 1});
      Reference reference(kSmall, optimizer);
      ASSERT_TRUE(clipped.job().WaitAll(clipped.PushAll()).ok());
      reference.Step({0, 1});

      const ClippedJob::Operations pushes = clipped.PushAll();
      clipped.RunEvents(events);
      clipped.job().KillServer(static_cast<uint32_t>(events) % 3);
      ASSERT_TRUE(clipped.job().WaitAll(pushes).ok()) << events;
      ASSERT_TRUE(clipped.job().WaitAll(clipped.PushAll()).ok()) << events;

      reference.Step({0, 1});
      reference.Step({0, 1});
      clipped.ExpectAt(reference, 0);
      clipped.ExpectAt(reference, 1);
    }
  }
}

// ---- workers ----

// Their gradients of a step are clipped by a norm of those who count.
TEST(SimClipTest, AWorkerMayDieAtAnyMomentOfAStep) {
  for (int events = 0; events < kEventsOfAStep; ++events) {
    const OptimizerSpec sum{.kind = OptimizerKind::kSum};
    ClippedJob clipped({.optimizer = sum});
    const ClippedJob::Operations mine = clipped.Push(0);
    const ClippedJob::Operations others = clipped.Push(1);
    clipped.RunEvents(events);

    clipped.job().KillWorker(1);

    ASSERT_TRUE(clipped.job().WaitAll(mine).ok()) << events;
    ASSERT_TRUE(clipped.job().WaitAll(clipped.Push(0)).ok()) << events;
    ASSERT_TRUE(clipped.job().WaitAll(clipped.Push(0)).ok()) << events;
    Reference alone(kSmall, sum);
    alone.Step({0});
    alone.Step({0});
    alone.Step({0});
    clipped.ExpectAt(alone, 0);
  }
}

TEST(SimClipTest, AServerAndAWorkerMayDieInOneStep) {
  for (int events = 0; events < kEventsOfAStep; events += 3) {
    const OptimizerSpec sum{.kind = OptimizerKind::kSum};
    ClippedJob clipped({.optimizer = sum, .servers = 3, .replication = 1});
    const ClippedJob::Operations mine = clipped.Push(0);
    const ClippedJob::Operations others = clipped.Push(1);
    clipped.RunEvents(events);

    clipped.job().KillServer(static_cast<uint32_t>(events) % 3);
    clipped.RunEvents(events % 5);
    clipped.job().KillWorker(1);

    ASSERT_TRUE(clipped.job().WaitAll(mine).ok()) << events;
    ASSERT_TRUE(clipped.job().WaitAll(clipped.Push(0)).ok()) << events;
    Reference alone(kSmall, sum);
    alone.Step({0});
    alone.Step({0});
    clipped.ExpectAt(alone, 0);
  }
}

TEST(SimClipTest, TheOnlyWorkerMayBeReplacedAtAnyMomentOfAStep) {
  for (int events = 0; events < kEventsOfAStep; ++events) {
    const OptimizerSpec sum{.kind = OptimizerKind::kSum};
    ClippedJob clipped({.optimizer = sum, .workers = 1});
    const ClippedJob::Operations lost = clipped.Push(0);
    clipped.RunEvents(events);

    clipped.job().KillWorker(0);
    ASSERT_TRUE(clipped.job().Wait(clipped.Start(0)).ok()) << events;

    const uint64_t first = clipped.job().worker(0).start_step().value();
    Reference reference(kSmall, sum);
    for (uint64_t step = 0; step < first; ++step) reference.Step({0});
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(clipped.job().WaitAll(clipped.Push(0)).ok()) << events;
      reference.Step({0});
    }
    clipped.ExpectAt(reference, 0);
  }
}

// ---- what a program is told ----

TEST(SimClipTest, AStepWithoutOneOfItsTensorsSaysWhatItWaitsFor) {
  ClippedJob clipped({.workers = 1});
  const std::shared_ptr<PendingOperation> first = clipped.Push(0, 0, 0);
  clipped.job().scheduler().RunFor(std::chrono::seconds(1));

  const absl::Status early = first->Wait(Deadline::After(Duration::zero()));
  const std::shared_ptr<PendingOperation> second = clipped.Push(0, 1, 0);
  const std::shared_ptr<PendingOperation> third = clipped.Push(0, 2, 0);

  EXPECT_THAT(std::string(early.message()), HasSubstr("all of its 3 tensors with clip_norm"));
  EXPECT_TRUE(clipped.job().WaitAll({first, second, third}).ok());
}

TEST(SimClipTest, ModesThatCannotClipAreRefusedByTheTensor) {
  ClippedJob clipped({.workers = 3});

  const absl::Status async = clipped.job().SetMode({.mode = SyncMode::kAsync});
  const absl::Status backup = clipped.job().SetMode({.backup_workers = 1});
  const absl::Status gated = clipped.job().SetMode({.gated = true});

  for (const absl::Status& refused : {async, backup, gated}) {
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("tensor \"a\": clip_norm 2"), HasSubstr("spec.sync.")));
  }
}

}  // namespace
}  // namespace pushpull
