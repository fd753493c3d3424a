// SPDX-License-Identifier: Apache-2.0
//
// Joint pushes (docs/decisions/0084-joint-pushes.md): what they send, what they add up to, and what
// happens when a worker of a group is late, dies, joins or leaves. Whole jobs with the product's
// own code over a fake clock.
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/sim_job.h"
#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr int64_t kValues = 1000;

SimJobOptions Groups(uint32_t workers, uint32_t servers, uint32_t nodes = 1) {
  SimJobOptions options{.settings = {.job = "sim", .workers = workers, .servers = servers},
                        .local_reduce = LocalReduce::kHost,
                        .nodes = nodes};
  options.network.faults.delay_max = std::chrono::milliseconds(2);
  return options;
}

// Tensors whose chunks every member of a group sums some of.
std::vector<TensorSpec> Tensors(Reduction reduction, OptimizerKind kind = OptimizerKind::kSgd) {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 8; ++i)
    specs.push_back(SimTensor(absl::StrCat("t", i), kValues, kind, reduction));
  return specs;
}

// Over all series of the metric.
double Total(const std::string& metrics, const std::string& name) {
  double total = 0;
  for (size_t at = metrics.find("\n" + name); at != std::string::npos;
       at = metrics.find("\n" + name, at + 1)) {
    const size_t value = metrics.find(' ', at) + 1;
    total += std::stod(metrics.substr(value));
  }
  return total;
}

double PushedBytes(SimJob& job) {
  double bytes = 0;
  for (uint32_t i = 0; job.has_server(i); ++i)
    bytes += Total(job.ServerMetricsText(i), "pushpull_push_bytes_total");
  return bytes;
}

double BytesOfStep(SimJobOptions options, uint32_t workers) {
  SimJob job(std::move(options));
  SimTrainer trainer(job, Tensors(Reduction::kMean));
  EXPECT_TRUE(trainer.Start(workers).ok());
  // The links within the groups come up meanwhile.
  EXPECT_TRUE(trainer.StepAll(workers, [](uint32_t) { return 1.0F; }).ok());
  const double before = PushedBytes(job);
  EXPECT_TRUE(trainer.StepAll(workers, [](uint32_t) { return 1.0F; }).ok());
  return PushedBytes(job) - before;
}

TEST(SimJointTest, AGroupSendsAsMuchAsOneWorker) {
  SimJobOptions flat = Groups(4, 2);
  flat.local_reduce = LocalReduce::kNone;

  const double of_all = BytesOfStep(flat, 4);

  EXPECT_EQ(of_all, 4 * 8 * kValues * sizeof(float));
  EXPECT_EQ(BytesOfStep(Groups(4, 2), 4), of_all / 4);
  EXPECT_EQ(BytesOfStep(Groups(4, 2, 2), 4), of_all / 2);
}

TEST(SimJointTest, AWorkerCountsItsPushesByWhetherTheyWereJoint) {
  SimJob job(Groups(3, 1));
  SimTrainer trainer(job, Tensors(Reduction::kMean));
  ASSERT_TRUE(trainer.Start(3).ok());
  // The links within the group come up meanwhile.
  ASSERT_TRUE(trainer.StepAll(3, [](uint32_t) { return 1.0F; }).ok());
  const auto count = [&job](uint32_t worker, const std::string& kind) {
    return Total(job.WorkerMetricsText(worker),
                 absl::StrCat("pushpull_chunk_pushes_total{kind=\"", kind, "\"}"));
  };
  std::vector<double> alone;
  for (uint32_t worker = 0; worker < 3; ++worker) {
    alone.push_back(count(worker, "alone"));
    EXPECT_EQ(alone.back() + count(worker, "joint"), 8);
  }

  ASSERT_TRUE(trainer.StepAll(3, [](uint32_t) { return 1.0F; }).ok());

  for (uint32_t worker = 0; worker < 3; ++worker) {
    EXPECT_EQ(count(worker, "alone"), alone[worker]);
    EXPECT_EQ(alone[worker] + count(worker, "joint"), 16);
  }
}

TEST(SimJointTest, TheMeanIsWeightedBySamples) {
  SimJob job(Groups(3, 1));
  SimTrainer trainer(job, Tensors(Reduction::kMean));
  ASSERT_TRUE(trainer.Start(3).ok());
  // Two steps: the first may be pushed by each worker, before the links are up.
  for (int step = 0; step < 2; ++step) {
    SimTrainer::Operations pending = trainer.Push(0, 8.0F, 1);
    for (auto& one : trainer.Push(1, 0.0F, 0)) pending.push_back(std::move(one));
    for (auto& one : trainer.Push(2, 16.0F, 3)) pending.push_back(std::move(one));

    ASSERT_TRUE(job.WaitAll(pending).ok());
  }

  // (1 * 8 + 3 * 16) / 4, twice, at a learning rate of 1.
  for (uint32_t worker = 0; worker < 3; ++worker)
    for (size_t tensor = 0; tensor < 8; ++tensor)
      EXPECT_THAT(trainer.value(worker, tensor), Each(-28.0F)) << worker << ", " << tensor;
}

TEST(SimJointTest, EveryReductionIsThatOfTheWorkers) {
  for (const auto& [reduction, expected] : {std::pair{Reduction::kMin, 2.0F},
                                            std::pair{Reduction::kMax, 8.0F},
                                            std::pair{Reduction::kSum, 14.0F},
                                            std::pair{Reduction::kProd, 64.0F},
                                            std::pair{Reduction::kAnd, 1.0F}}) {
    SimJob job(Groups(3, 1));
    SimTrainer trainer(job, Tensors(reduction, OptimizerKind::kSum));
    ASSERT_TRUE(trainer.Start(3).ok());
    ASSERT_TRUE(trainer.StepAll(3, [](uint32_t) { return 0.0F; }).ok());
    const double before = PushedBytes(job);

    ASSERT_TRUE(trainer.StepAll(3, [](uint32_t worker) { return 2.0F * (1U << worker); }).ok());

    EXPECT_EQ(PushedBytes(job) - before, 8 * kValues * sizeof(float));
    EXPECT_THAT(trainer.value(2, 7), Each(expected)) << ToString(reduction);
  }
}

TEST(SimJointTest, AWorkerThatIsLateDoesNotHideBehindItsGroup) {
  SimJobOptions options = Groups(3, 1);
  options.settings.stall = std::chrono::seconds(4);
  SimJob job(options);
  SimTrainer trainer(job, Tensors(Reduction::kSum));
  ASSERT_TRUE(trainer.Start(3).ok());
  ASSERT_TRUE(trainer.StepAll(3, [](uint32_t) { return 1.0F; }).ok());
  SimTrainer::Operations pending = trainer.Push(0, 1.0F);
  for (auto& one : trainer.Push(2, 4.0F)) pending.push_back(std::move(one));

  const auto stall_of = [&]() -> std::optional<Stall> { return job.Status().stall; };
  ASSERT_TRUE(
      job.scheduler().RunUntil([&] { return stall_of().has_value(); }, std::chrono::minutes(1)));

  EXPECT_THAT(stall_of()->missing, ElementsAre(WorkerId{1}));
  for (auto& one : trainer.Push(1, 2.0F)) pending.push_back(std::move(one));
  ASSERT_TRUE(job.WaitAll(pending).ok());
  EXPECT_THAT(trainer.value(1, 3), Each(-3.0F - 7.0F));
}

TEST(SimJointTest, TheOthersGoOnWithoutAWorkerThatDies) {
  SimJob job(Groups(3, 1));
  SimTrainer trainer(job, Tensors(Reduction::kSum));
  ASSERT_TRUE(trainer.Start(3).ok());
  ASSERT_TRUE(trainer.StepAll(3, [](uint32_t) { return 1.0F; }).ok());
  SimTrainer::Operations pending = trainer.Push(0, 1.0F);
  for (auto& one : trainer.Push(2, 4.0F)) pending.push_back(std::move(one));

  job.KillWorker(1);

  ASSERT_TRUE(job.WaitAll(pending).ok());
  EXPECT_THAT(trainer.value(0, 3), Each(-3.0F - 5.0F));
  // And together again, without it.
  const double before = PushedBytes(job);
  pending = trainer.Push(0, 1.0F);
  for (auto& one : trainer.Push(2, 4.0F)) pending.push_back(std::move(one));
  ASSERT_TRUE(job.WaitAll(pending).ok());
  EXPECT_EQ(PushedBytes(job) - before, 8 * kValues * sizeof(float));
}

TEST(SimJointTest, AGradientThatIsNotFiniteIsSaidToBeItsWorkers) {
  SimJob job(Groups(3, 1));
  SimTrainer trainer(job, Tensors(Reduction::kSum));
  ASSERT_TRUE(trainer.Start(3).ok());
  ASSERT_TRUE(trainer.StepAll(3, [](uint32_t) { return 1.0F; }).ok());

  const absl::Status status = trainer.StepAll(
      3, [](uint32_t worker) { return worker == 1 ? std::numeric_limits<float>::quiet_NaN() : 1; });

  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("from worker-1 in step 1"));
}

TEST(SimJointTest, NothingIsSummedInOtherModes) {
  SimJobOptions options = Groups(3, 1);
  options.consistency.gated = true;
  const double bytes = BytesOfStep(options, 3);

  EXPECT_EQ(bytes, 3 * 8 * kValues * sizeof(float));
}

}  // namespace
}  // namespace pushpull
