// SPDX-License-Identifier: Apache-2.0
//
// Tensors of float16 and bfloat16, and products and logical reductions, in whole simulated jobs:
// what workers have is the rounded value of a job of float32 that gets the same gradients, also
// where frames are lost, servers die and jobs go on from checkpoints.
#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tensor/master_values.h"
#include "tests/fakes/sim_job.h"
#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kWorkers = 3;
constexpr DType kHalves[] = {DType::kFloat16, DType::kBFloat16};
// Two chunks, one, and less than a vector.
constexpr size_t kSizes[] = {100'000, 65'536, 3};
constexpr char kFolder[] = "/checkpoints";

SimJobOptions Options(uint32_t servers, uint32_t replication, uint64_t seed) {
  return DeterministicSim(kWorkers, servers, replication, seed);
}

SimJobOptions SavingOptions(FileSystem& files) {
  return WithCheckpoints(Options(2, 0, 1), kFolder, files);
}

TensorSpec FourValues(DType dtype) {
  TensorSpec spec = SimTensor("w", 4, OptimizerKind::kSum, Reduction::kSum);
  spec.dtype = dtype;
  return spec;
}

// Every type has it exactly, and their sums in float32 are exact.
float GradientOf(uint64_t step, uint32_t worker, size_t tensor, size_t i) {
  return static_cast<float>((step * 31 + worker * 17 + tensor * 5 + i * 7) % 101) / 64 - 0.75F;
}

std::vector<std::byte> As(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> narrow(values.size() * DTypeBytes(dtype));
  Narrow(dtype, values, narrow);
  return narrow;
}

using Bytes = std::vector<std::byte>;

TensorSpec SpecOf(size_t tensor, DType dtype, OptimizerKind kind, Reduction reduction) {
  TensorSpec spec = SimTensor(
      "t" + std::to_string(tensor), static_cast<int64_t>(kSizes[tensor]), kind, reduction);
  spec.dtype = dtype;
  if (kind == OptimizerKind::kSum) return spec;
  spec.optimizer.learning_rate = 0.01;
  spec.optimizer.momentum = kind == OptimizerKind::kSgd ? 0.9 : 0;
  return spec;
}

// Workers whose gradients follow from worker, step, tensor and place.
class Trainer {
 public:
  Trainer(SimJob& job, DType dtype, OptimizerKind kind) : job_(job), dtype_(dtype), kind_(kind) {}

  absl::Status Start() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      job_.StartWorker(w).Join();
      values_.emplace_back();
      std::vector<TensorRegistration> registrations;
      for (const size_t size : kSizes)
        values_[w].push_back(As(dtype_, std::vector<float>(size, 0.5F)));
      for (size_t t = 0; t < std::size(kSizes); ++t) {
        const bool has_optimizer = kind_ != OptimizerKind::kSum;
        registrations.push_back(
            {.spec = SpecOf(t, dtype_, kind_, has_optimizer ? Reduction::kMean : Reduction::kSum),
             .value = {dtype_, values_[w][t]}});
      }
      pending.push_back(job_.worker(w).Register(registrations));
    }
    gradients_ = values_;
    absl::Status started = job_.WaitAll(pending);
    if (started.ok()) step_ = job_.worker(0).start_step().value();
    return started;
  }

  std::vector<std::shared_ptr<PendingOperation>> Begin() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      for (size_t t = 0; t < std::size(kSizes); ++t) {
        std::vector<float> gradient(kSizes[t]);
        for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = GradientOf(step_, w, t, i);
        Narrow(dtype_, gradient, gradients_[w][t]);
        auto handle = job_.worker(w).PushPull(
            "t" + std::to_string(t), {dtype_, gradients_[w][t]}, {dtype_, values_[w][t]}, {});
        EXPECT_TRUE(handle.ok()) << handle.status();
        if (handle.ok()) pending.push_back(*handle);
      }
    }
    ++step_;
    return pending;
  }

  absl::Status Steps(uint64_t count) {
    absl::Status done;
    for (uint64_t i = 0; i < count && done.ok(); ++i) done = job_.WaitAll(Begin());
    return done;
  }

  uint64_t step() const { return step_; }
  const std::vector<Bytes>& values(uint32_t worker) const { return values_[worker]; }

 private:
  SimJob& job_;
  const DType dtype_;
  const OptimizerKind kind_;
  uint64_t step_ = 0;
  std::vector<std::vector<Bytes>> values_;
  std::vector<std::vector<Bytes>> gradients_;
};

// What a job of float32 has after so many steps, as `dtype`.
std::vector<Bytes> Expected(DType dtype, OptimizerKind kind, uint64_t steps) {
  SimJob job(Options(2, 0, 1));
  Trainer trainer(job, DType::kFloat32, kind);
  EXPECT_TRUE(trainer.Start().ok());
  EXPECT_TRUE(trainer.Steps(steps).ok());
  std::vector<Bytes> expected;
  for (const Bytes& bytes : trainer.values(0)) {
    std::vector<float> values(bytes.size() / sizeof(float));
    Widen(DType::kFloat32, bytes, values);
    expected.push_back(As(dtype, values));
  }
  return expected;
}

TEST(SimValuesTest, HalvesAreTheRoundedValuesOfFloat32) {
  for (const DType dtype : kHalves) {
    for (const OptimizerKind kind :
         {OptimizerKind::kSum, OptimizerKind::kSgd, OptimizerKind::kAdam}) {
      SCOPED_TRACE(ToString(dtype) + " optimizer " + std::to_string(static_cast<int>(kind)));
      SimJob job(Options(2, 0, 1));
      Trainer trainer(job, dtype, kind);
      ASSERT_TRUE(trainer.Start().ok());
      ASSERT_TRUE(trainer.Steps(12).ok());

      EXPECT_EQ(trainer.values(1), Expected(dtype, kind, 12));
    }
  }
}

TEST(SimValuesTest, LostAndDoubledFramesChangeNoHalf) {
  const auto expected = Expected(DType::kBFloat16, OptimizerKind::kAdam, 8);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    SimJobOptions options = Options(3, 0, seed);
    options.network.faults.loss = 0.1;
    options.network.faults.duplication = 0.1;
    SimJob job(options);
    Trainer trainer(job, DType::kBFloat16, OptimizerKind::kAdam);
    ASSERT_TRUE(trainer.Start().ok());
    ASSERT_TRUE(trainer.Steps(8).ok());
    EXPECT_EQ(trainer.values(2), expected);
  }
}

TEST(SimValuesTest, AFollowerHasTheMasterValues) {
  const auto expected = Expected(DType::kBFloat16, OptimizerKind::kAdam, 8);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    SimJob job(Options(3, 1, seed));
    Trainer trainer(job, DType::kBFloat16, OptimizerKind::kAdam);
    ASSERT_TRUE(trainer.Start().ok());
    ASSERT_TRUE(trainer.Steps(3).ok());
    const auto pending = trainer.Begin();
    job.scheduler().RunFor(std::chrono::microseconds(700 * seed));
    job.KillServer(static_cast<uint32_t>(seed % 3));
    ASSERT_TRUE(job.WaitAll(pending).ok());
    ASSERT_TRUE(trainer.Steps(4).ok());
    EXPECT_EQ(trainer.values(1), expected);
  }
}

// The sums of this job have no more bits than the workers' copies.
TEST(SimValuesTest, ALostServerIsRebuiltFromHalves) {
  const auto expected = Expected(DType::kFloat16, OptimizerKind::kSum, 8);
  SimJobOptions options = Options(2, 0, 1);
  options.repairs_losses = true;
  SimJob job(options);
  Trainer trainer(job, DType::kFloat16, OptimizerKind::kSum);
  ASSERT_TRUE(trainer.Start().ok());
  ASSERT_TRUE(trainer.Steps(4).ok());
  const auto pending = trainer.Begin();

  job.KillServer(1);
  job.StartServer(1);

  ASSERT_TRUE(job.WaitAll(pending).ok());
  ASSERT_TRUE(trainer.Steps(3).ok());
  EXPECT_EQ(trainer.values(0), expected);
  EXPECT_EQ(job.Status().state_losses.size(), 1U);
}

TEST(SimValuesTest, CheckpointsHaveTheMasterValues) {
  MemoryFileSystem files;
  {
    SimJob job(SavingOptions(files));
    Trainer trainer(job, DType::kBFloat16, OptimizerKind::kAdam);
    ASSERT_TRUE(trainer.Start().ok());
    ASSERT_TRUE(trainer.Steps(5).ok());
    const absl::StatusOr<uint64_t> save = job.SaveCheckpoint();
    ASSERT_TRUE(save.ok()) << save.status();
    for (int i = 0; i < 100 && job.Status().checkpoint.finished < *save; ++i) {
      ASSERT_TRUE(trainer.Steps(1).ok());
      job.scheduler().RunFor(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(job.Status().checkpoint.saved, 1U) << job.Status().checkpoint.failure;
  }
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    SCOPED_TRACE(ToString(dtype));
    SimJob job(SavingOptions(files));
    Trainer trainer(job, dtype, OptimizerKind::kAdam);
    ASSERT_TRUE(trainer.Start().ok());
    const uint64_t before = trainer.step();
    ASSERT_GT(before, 0U);
    ASSERT_TRUE(trainer.Steps(4).ok());
    EXPECT_EQ(trainer.values(0), Expected(dtype, OptimizerKind::kAdam, before + 4));
  }
}

TEST(SimValuesTest, AStateOfTheOptimizerGoesWithHalves) {
  constexpr size_t kValues = 70'000;  // two chunks
  TensorSpec spec = SimTensor("w", kValues, OptimizerKind::kSgd, Reduction::kMean);
  spec.dtype = DType::kBFloat16;
  spec.optimizer.momentum = 0.5;
  SimJobOptions options = Options(1, 0, 1);
  options.settings.workers = 1;
  SimJob job(options);
  Bytes value = As(spec.dtype, std::vector<float>(kValues, 8));
  Bytes gradient = As(spec.dtype, std::vector<float>(kValues, 1));
  std::vector<float> state(kValues);
  for (size_t i = 0; i < kValues; ++i) state[i] = static_cast<float>(i % 7);
  const TensorRegistration registration{
      .spec = spec, .value = {spec.dtype, value}, .optimizer_state = state, .updates = 3};
  job.StartWorker(0).Join();
  ASSERT_TRUE(job.Wait(job.worker(0).Register({&registration, 1})).ok());

  ASSERT_TRUE(
      job.Wait(*job.worker(0).PushPull("w", {spec.dtype, gradient}, {spec.dtype, value}, {})).ok());
  std::vector<float> pulled(kValues);
  ASSERT_TRUE(job.Wait(*job.worker(0).PullOptimizerState("w", pulled, Step{1})).ok());

  std::vector<float> values(kValues);
  Widen(spec.dtype, value, values);
  for (size_t i = 0; i < kValues; ++i) {
    ASSERT_EQ(pulled[i], 0.5F * static_cast<float>(i % 7) + 1) << i;
    ASSERT_EQ(values[i], 8 - pulled[i]) << i;
  }
}

TEST(SimValuesTest, OtherTypesThanRegisteredAreRefusedByName) {
  SimJobOptions options = Options(1, 0, 1);
  options.settings.workers = 1;
  SimJob job(options);
  const TensorSpec spec = FourValues(DType::kFloat16);
  Bytes value(8);
  std::vector<float> floats(4, 0.0F);
  WorkerNode& worker = job.StartWorker(0);
  worker.Join();
  const TensorRegistration wrong{.spec = spec, .value = floats};
  const absl::Status refused = job.Wait(worker.Register({&wrong, 1}));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("\"w\""), HasSubstr("of float16"), HasSubstr("4 float32")));
  const TensorRegistration right{.spec = spec, .value = {spec.dtype, value}};
  ASSERT_TRUE(job.Wait(worker.Register({&right, 1})).ok());

  const absl::Status pushed = worker.PushPull("w", floats, {spec.dtype, value}, {}).status();
  const absl::Status out = worker.Pull("w", floats, Step{0}).status();
  const absl::Status in_place =
      worker.PushPull("w", {spec.dtype, value}, {}, {.in_place = true}).status();

  EXPECT_THAT(std::string(pushed.message()),
              HasSubstr("has 4 values of float16, got gradient of 4 values of float32"));
  EXPECT_THAT(std::string(out.message()), HasSubstr("got out of 4 values of float32"));
  EXPECT_THAT(std::string(in_place.message()), HasSubstr("in_place is for tensors of float32"));
}

TEST(SimValuesTest, WorkersMustAgreeOnTheType) {
  SimJob job(Options(1, 0, 1));
  std::vector<Bytes> values(kWorkers, Bytes(8));
  std::vector<std::shared_ptr<PendingOperation>> pending;
  for (uint32_t w = 0; w < kWorkers; ++w) {
    const TensorSpec spec = FourValues(w == 2 ? DType::kBFloat16 : DType::kFloat16);
    const TensorRegistration registration{.spec = spec, .value = {spec.dtype, values[w]}};
    job.StartWorker(w).Join();
    pending.push_back(job.worker(w).Register({&registration, 1}));
  }
  const absl::Status status = job.Wait(pending[2]);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("worker-2 and worker-0 differ in it: dtype bfloat16"));
}

TEST(SimValuesTest, AnOverflowOfFloat16ReachesWorkersAsInfinity) {
  SimJobOptions options = Options(1, 0, 1);
  options.settings.workers = 2;
  SimJob job(options);
  const TensorSpec spec = FourValues(DType::kFloat16);
  std::vector<Bytes> values(2, Bytes(8));
  std::vector<std::shared_ptr<PendingOperation>> pending;
  for (uint32_t w = 0; w < 2; ++w) {
    const TensorRegistration registration{.spec = spec, .value = {spec.dtype, values[w]}};
    job.StartWorker(w).Join();
    pending.push_back(job.worker(w).Register({&registration, 1}));
  }
  ASSERT_TRUE(job.WaitAll(pending).ok());
  pending.clear();
  Bytes gradient = As(spec.dtype, {60'000, 1, -60'000, 0});
  for (uint32_t w = 0; w < 2; ++w) {
    pending.push_back(
        *job.worker(w).PushPull("w", {spec.dtype, gradient}, {spec.dtype, values[w]}, {}));
  }
  ASSERT_TRUE(job.WaitAll(pending).ok());

  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> sum(4);
  Widen(spec.dtype, values[1], sum);
  EXPECT_THAT(sum, testing::ElementsAre(infinity, 2, -infinity, 0));
}

// ---- reductions ----

float Reduced(Reduction reduction, const std::vector<float>& values) {
  float reduced = values[0];
  for (size_t i = 1; i < values.size(); ++i) reduced *= values[i];
  if (reduction == Reduction::kProd) return reduced;
  const auto is_set = [](float value) { return value != 0; };
  return reduction == Reduction::kAnd ? std::ranges::all_of(values, is_set)
                                      : std::ranges::any_of(values, is_set);
}

TEST(SimValuesTest, ProductsAndLogicalReductionsCountEachOnce) {
  for (const Reduction reduction : {Reduction::kProd, Reduction::kAnd, Reduction::kOr}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(ToString(reduction) + " " + ToString(dtype) + " " + std::to_string(seed));
        SimJobOptions options = Options(3, 1, seed);
        options.settings.deterministic = false;
        options.network.faults.loss = 0.1;
        options.network.faults.duplication = 0.1;
        SimJob job(options);
        const std::vector<std::vector<float>> pushed = {
            {2, 0, 0, 3}, {3, 0, -1, 5}, {0.5, 0, 4, -1}};
        TensorSpec spec = SimTensor("w", 4, OptimizerKind::kSum, reduction);
        spec.dtype = dtype;
        std::vector<Bytes> values(kWorkers, As(dtype, std::vector<float>(4, 9)));
        std::vector<Bytes> gradients;
        std::vector<std::shared_ptr<PendingOperation>> pending;
        for (uint32_t w = 0; w < kWorkers; ++w) {
          const TensorRegistration registration{.spec = spec, .value = {dtype, values[w]}};
          job.StartWorker(w).Join();
          pending.push_back(job.worker(w).Register({&registration, 1}));
          gradients.push_back(As(dtype, pushed[w]));
        }
        ASSERT_TRUE(job.WaitAll(pending).ok());
        for (int step = 0; step < 3; ++step) {
          pending.clear();
          for (uint32_t w = 0; w < kWorkers; ++w)
            pending.push_back(
                *job.worker(w).PushPull("w", {dtype, gradients[w]}, {dtype, values[w]}, {}));
          if (step == 1) job.KillServer(static_cast<uint32_t>(seed % 3));
          ASSERT_TRUE(job.WaitAll(pending).ok());
        }

        std::vector<float> last(4);
        Widen(dtype, values[0], last);
        for (size_t i = 0; i < 4; ++i)
          EXPECT_EQ(last[i], Reduced(reduction, {pushed[0][i], pushed[1][i], pushed[2][i]})) << i;
      }
    }
  }
}

TEST(SimValuesTest, ASingleWorkersAndIsOneOrZero) {
  SimJobOptions options = Options(1, 0, 1);
  options.settings.workers = 1;
  SimJob job(options);
  SimTrainer trainer(job, {SimTensor("w", 5, OptimizerKind::kSum, Reduction::kAnd)});
  ASSERT_TRUE(trainer.Start(1).ok());
  ASSERT_TRUE(trainer.StepAll(1, [](uint32_t) { return 7.5F; }).ok());
  EXPECT_EQ(trainer.value(0)[0], 1);
}

TEST(SimValuesTest, AProductForAnOptimizerIsRefusedByName) {
  SimJobOptions options = Options(1, 0, 1);
  options.settings.workers = 1;
  SimJob job(options);
  SimTrainer trainer(job, {SimTensor("w", 5, OptimizerKind::kSgd, Reduction::kProd)});
  const absl::Status started = trainer.Start(1);
  EXPECT_THAT(std::string(started.message()),
              AllOf(HasSubstr("\"w\""), HasSubstr("prod needs the optimizer Sum")));
}

}  // namespace
}  // namespace pushpull
