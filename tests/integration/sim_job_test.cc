// SPDX-License-Identifier: Apache-2.0
//
// Whole jobs with the product's own coordinator, servers and workers, in one thread over a fake
// clock. A failing case prints its seed and replays.
#include "tests/fakes/sim_job.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

using testing::Each;
using testing::HasSubstr;

JobSettings Settings(uint32_t servers, uint32_t workers) {
  return {.job = "sim", .workers = workers, .servers = servers};
}

TEST(SimJobTest, TenNodesLiveInOneProcess) {
  SimJob job({.settings = Settings(4, 5)});
  SimTrainer trainer(job,
                     {SimTensor("a", 300'000, OptimizerKind::kSum, Reduction::kSum),
                      SimTensor("b", 7, OptimizerKind::kSum, Reduction::kSum)});
  ASSERT_TRUE(trainer.Start(5).ok());

  ASSERT_TRUE(
      trainer.StepAll(5, [](uint32_t worker) { return static_cast<float>(worker + 1); }).ok());

  EXPECT_THAT(trainer.value(0, 0), Each(15));
  EXPECT_THAT(trainer.value(4, 1), Each(15));
}

TEST(SimJobTest, LossDuplicationAndReorderingLeaveSumsExact) {
  constexpr uint32_t kWorkers = 4;
  constexpr int kSteps = 2500;  // 10,000 updates
  InprocOptions network;
  network.faults = {.delay_max = std::chrono::milliseconds(2),
                    .loss = 0.1,
                    .duplication = 0.1,
                    .reordering = 0.1};
  SimJob job({.settings = Settings(2, kWorkers), .seed = 20240607, .network = network});
  SimTrainer trainer(job, {SimTensor("w", 3, OptimizerKind::kSgd, Reduction::kSum)});
  ASSERT_TRUE(trainer.Start(kWorkers).ok());

  double expected = 0;
  for (int step = 0; step < kSteps; ++step) {
    const auto gradient = [&](uint32_t worker) {
      return static_cast<float>((step + 3 * static_cast<int>(worker)) % 7 - 3);
    };
    for (uint32_t worker = 0; worker < kWorkers; ++worker) expected -= gradient(worker);
    ASSERT_TRUE(trainer.StepAll(kWorkers, gradient).ok()) << "step " << step;
  }

  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    EXPECT_THAT(trainer.value(worker), Each(static_cast<float>(expected)));
  }
  EXPECT_THAT(job.ServerMetricsText(0) + job.ServerMetricsText(1),
              HasSubstr("pushpull_duplicates_total"));
}

TEST(SimJobTest, AWaitThatEndsNamesTheWorkersThatHaveNotPushed) {
  SimJob job({.settings = Settings(2, 3)});
  SimTrainer trainer(job, {SimTensor("w", 4, OptimizerKind::kSum, Reduction::kMean)});
  ASSERT_TRUE(trainer.Start(3).ok());
  ASSERT_TRUE(trainer.StepAll(3, [](uint32_t) { return 1.0F; }).ok());
  auto pending = trainer.Push(0, 1);

  job.scheduler().RunFor(std::chrono::seconds(3));
  const absl::Status late = pending.front()->Wait(Deadline(SteadyTime{}));

  EXPECT_TRUE(absl::IsDeadlineExceeded(late));
  EXPECT_THAT(
      std::string(late.message()),
      HasSubstr("push_pull of tensor \"w\" step 1: not done in time; it waits for worker-1, "
                "worker-2: no gradient of tensor \"w\""));
  for (const uint32_t worker : {1U, 2U}) {
    for (auto& one : trainer.Push(worker, 1)) pending.push_back(std::move(one));
  }
  EXPECT_TRUE(job.WaitAll(pending).ok());
}

TEST(SimJobTest, AWaitEndsWhenCoordinatorAndServersAreGone) {
  SimJob job({.settings = Settings(1, 2)});
  SimTrainer trainer(job, {SimTensor("w", 4, OptimizerKind::kSum, Reduction::kMean)});
  ASSERT_TRUE(trainer.Start(2).ok());
  const auto pending = trainer.Push(0, 1);

  job.KillCoordinator();
  job.KillServer(0);

  ASSERT_TRUE(
      job.scheduler().RunUntil([&] { return pending.front()->is_done(); }, std::chrono::hours(1)));
  EXPECT_TRUE(absl::IsUnavailable(pending.front()->Wait(Deadline(SteadyTime{}))));
}

TEST(SimJobTest, TheMeanIsWeightedBySamples) {
  SimJob job({.settings = Settings(1, 2)});
  SimTrainer trainer(job, {SimTensor("w", 4, OptimizerKind::kSum, Reduction::kMean)});
  ASSERT_TRUE(trainer.Start(2).ok());

  auto pending = trainer.Push(0, 1, 30);
  for (auto& one : trainer.Push(1, 5, 10)) pending.push_back(std::move(one));

  ASSERT_TRUE(job.WaitAll(pending).ok());
  EXPECT_THAT(trainer.value(0), Each(2));
}

// The bits of all values after some steps of Adam, with arrival order drawn from `seed`.
std::vector<float> TrainDeterministically(uint64_t seed) {
  JobSettings settings = Settings(2, 3);
  settings.deterministic = true;
  InprocOptions network;
  network.faults = {.delay_max = std::chrono::milliseconds(3), .reordering = 0.2};
  SimJob job({.settings = settings, .seed = seed, .network = network});
  SimTrainer trainer(job,
                     {SimTensor("a", 100, OptimizerKind::kAdam, Reduction::kMean),
                      SimTensor("b", 40, OptimizerKind::kAdam, Reduction::kMean)});
  EXPECT_TRUE(trainer.Start(3).ok());
  for (int step = 0; step < 50; ++step) {
    // Sums of these depend on their order: 0.1 and 1e7 do not fit one float together.
    const auto gradient = [&](uint32_t worker) {
      return (worker == 0 ? 0.1F : worker == 1 ? 1e7F : -1e7F) * static_cast<float>(step % 5 + 1);
    };
    EXPECT_TRUE(trainer.StepAll(3, gradient).ok());
  }
  std::vector<float> bits = trainer.value(0, 0);
  bits.insert(bits.end(), trainer.value(1, 1).begin(), trainer.value(1, 1).end());
  return bits;
}

TEST(SimJobTest, DeterministicBitsDoNotDependOnArrivalOrder) {
  const std::vector<float> first = TrainDeterministically(1);

  for (const uint64_t seed : {2U, 3U, 4U, 5U})
    EXPECT_EQ(TrainDeterministically(seed), first) << "seed " << seed;
}

TEST(SimJobTest, TheMeanExcludesADeadWorker) {
  SimJob job({.settings = Settings(2, 3)});
  SimTrainer trainer(job, {SimTensor("w", 4, OptimizerKind::kSum, Reduction::kMean)});
  ASSERT_TRUE(trainer.Start(3).ok());
  ASSERT_TRUE(trainer.StepAll(3, [](uint32_t) { return 1.0F; }).ok());

  auto pending = trainer.Push(0, 2);
  for (auto& one : trainer.Push(1, 4)) pending.push_back(std::move(one));
  job.KillWorker(2);

  ASSERT_TRUE(job.WaitAll(pending).ok());
  EXPECT_THAT(trainer.value(0), Each(3));
}

TEST(SimJobTest, AReplacementJoinsWhileTheOthersGoOn) {
  SimJob job({.settings = Settings(2, 2)});
  SimTrainer trainer(job, {SimTensor("w", 4, OptimizerKind::kSum, Reduction::kSum)});
  ASSERT_TRUE(trainer.Start(2).ok());
  ASSERT_TRUE(trainer.StepAll(2, [](uint32_t) { return 1.0F; }).ok());
  job.KillWorker(1);
  ASSERT_TRUE(job.WaitAll(trainer.Push(0, 1)).ok());
  EXPECT_THAT(trainer.value(0), Each(1));

  const auto joined = trainer.StartOne(1);
  int steps_alone = 0;
  while (!joined->is_done() && steps_alone < 1000) {
    const auto pending = trainer.Push(0, 1);
    job.scheduler().RunUntil([&] { return joined->is_done() || pending.front()->is_done(); },
                             std::chrono::hours(1));
    if (joined->is_done()) break;
    ++steps_alone;
  }

  ASSERT_TRUE(job.Wait(joined).ok());
  EXPECT_GT(job.worker(1).start_step(), Step{2});
  ASSERT_TRUE(job.WaitAll(trainer.Push(1, 10)).ok());
  EXPECT_THAT(trainer.value(1), Each(11));
}

TEST(SimJobTest, TheOnlyWorkerIsReplacedWithoutLosingItsSteps) {
  SimJob job({.settings = Settings(2, 1)});
  SimTrainer trainer(job, {SimTensor("w", 4, OptimizerKind::kSgd, Reduction::kSum)});
  ASSERT_TRUE(trainer.Start(1).ok());
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(job.WaitAll(trainer.Push(0, 1)).ok());

  job.KillWorker(0);
  ASSERT_TRUE(job.Wait(trainer.StartOne(0)).ok());

  EXPECT_EQ(job.worker(0).start_step(), Step{3});
  EXPECT_THAT(trainer.value(0), Each(-3));
  ASSERT_TRUE(job.WaitAll(trainer.Push(0, 1)).ok());
  EXPECT_THAT(trainer.value(0), Each(-4));
}

TEST(SimJobTest, ABrokenConnectionCostsNoUpdate) {
  SimJob job({.settings = Settings(2, 2)});
  SimTrainer trainer(job, {SimTensor("w", 600'000, OptimizerKind::kSgd, Reduction::kSum)});
  ASSERT_TRUE(trainer.Start(2).ok());

  for (int step = 0; step < 20; ++step) {
    auto pending = trainer.Push(0, 1);
    for (auto& one : trainer.Push(1, 1)) pending.push_back(std::move(one));
    for (int i = 0; i < step; ++i) job.scheduler().RunOne();
    for (const char* worker : {"node-2", "node-3"}) {
      for (const char* server : {"node-0", "node-1"}) job.network().Break(worker, server);
    }
    ASSERT_TRUE(job.WaitAll(pending).ok()) << "step " << step;
  }

  EXPECT_THAT(trainer.value(0), Each(-40));
}

TEST(SimJobTest, AWorkerThatIsToldToEndBeforeItJoinsDoesNotJoin) {
  SimJob job({.settings = Settings(1, 1)});
  WorkerNode& worker = job.StartWorker(0);

  worker.TellToEnd();
  const absl::Status joined = job.Wait(worker.Join());

  EXPECT_EQ(joined.code(), absl::StatusCode::kCancelled) << joined;
  EXPECT_EQ(worker.departure().exit_code(), 143);
}

TEST(SimJobTest, WorkersThatHaveLeftAreNotWaitedFor) {
  SimJob job({.settings = Settings(1, 2)});
  SimTrainer trainer(job, {SimTensor("w", 4, OptimizerKind::kSum, Reduction::kSum)});
  ASSERT_TRUE(trainer.Start(2).ok());
  ASSERT_TRUE(trainer.StepAll(2, [](uint32_t) { return 1.0F; }).ok());

  ASSERT_TRUE(job.Wait(job.worker(1).Leave()).ok());
  ASSERT_TRUE(job.WaitAll(trainer.Push(0, 5)).ok());
  EXPECT_THAT(trainer.value(0), Each(5));

  ASSERT_TRUE(job.Wait(job.worker(0).Leave()).ok());
  EXPECT_EQ(job.Status().phase, JobPhase::kSucceeded);
}

class NonFiniteTest : public testing::Test {
 protected:
  // Two workers, one step where worker 1 pushes an infinity.
  absl::Status PushInfinity(NonFinitePolicy policy) {
    JobSettings settings = Settings(1, 2);
    settings.non_finite = policy;
    job_ = std::make_unique<SimJob>(SimJobOptions{.settings = settings});
    trainer_ = std::make_unique<SimTrainer>(
        *job_, std::vector{SimTensor("w", 4, OptimizerKind::kSgd, Reduction::kSum)});
    EXPECT_TRUE(trainer_->Start(2).ok());
    EXPECT_TRUE(trainer_->StepAll(2, [](uint32_t) { return -1.0F; }).ok());
    auto pending = trainer_->Push(0, -1);
    for (auto& one : trainer_->Push(1, std::numeric_limits<float>::infinity()))
      pending.push_back(std::move(one));
    return job_->WaitAll(pending);
  }
  std::unique_ptr<SimJob> job_;
  std::unique_ptr<SimTrainer> trainer_;
};

TEST_F(NonFiniteTest, FailNamesTensorWorkerAndStep) {
  const absl::Status status = PushInfinity(NonFinitePolicy::kFail);

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor \"w\" chunk 0 from worker-1 in step 1"));
  job_->scheduler().RunFor(std::chrono::seconds(5));
  EXPECT_EQ(job_->Status().phase, JobPhase::kFailed);
  EXPECT_THAT(job_->Status().failure, HasSubstr("from worker-1 in step 1"));
}

TEST_F(NonFiniteTest, SkipKeepsTheChunksValue) {
  ASSERT_TRUE(PushInfinity(NonFinitePolicy::kSkip).ok());

  EXPECT_THAT(trainer_->value(0), Each(2));
}

TEST_F(NonFiniteTest, DropLeavesOutThatContribution) {
  ASSERT_TRUE(PushInfinity(NonFinitePolicy::kDrop).ok());

  EXPECT_THAT(trainer_->value(0), Each(3));
  EXPECT_THAT(job_->ServerMetricsText(0), HasSubstr("pushpull_nonfinite_gradients_total 1"));
}

class OverflowTest : public testing::TestWithParam<NonFinitePolicy> {
 protected:
  // Two workers; in step 1 their finite gradients have no finite sum. Then one more step.
  absl::Status PushTooMuch() {
    JobSettings settings = Settings(1, 2);
    settings.non_finite = GetParam();
    job_ = std::make_unique<SimJob>(SimJobOptions{.settings = settings});
    trainer_ = std::make_unique<SimTrainer>(
        *job_, std::vector{SimTensor("w", 4, OptimizerKind::kSgd, Reduction::kSum)});
    EXPECT_TRUE(trainer_->Start(2).ok());
    EXPECT_TRUE(trainer_->StepAll(2, [](uint32_t) { return -1.0F; }).ok());
    const absl::Status too_much = trainer_->StepAll(2, [](uint32_t) { return 3e38F; });
    if (!too_much.ok()) return too_much;
    return trainer_->StepAll(2, [](uint32_t) { return -1.0F; });
  }
  std::unique_ptr<SimJob> job_;
  std::unique_ptr<SimTrainer> trainer_;
};

TEST_P(OverflowTest, SumThatIsNotFiniteChangesNoValue) {
  const absl::Status status = PushTooMuch();

  if (GetParam() == NonFinitePolicy::kFail) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("sum of the gradients of tensor \"w\" chunk 0 in step 1"));
    job_->scheduler().RunFor(std::chrono::seconds(5));
    EXPECT_EQ(job_->Status().phase, JobPhase::kFailed);
  } else {
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(trainer_->value(0), Each(4));
  }
  EXPECT_THAT(job_->ServerMetricsText(0), HasSubstr("pushpull_nonfinite_gradients_total 1"));
}

INSTANTIATE_TEST_SUITE_P(Policies,
                         OverflowTest,
                         testing::Values(NonFinitePolicy::kFail,
                                         NonFinitePolicy::kSkip,
                                         NonFinitePolicy::kDrop));

// The mean of a phase's histogram in a worker's metrics, in seconds.
double PhaseSeconds(const std::string& text, const std::string& phase) {
  const std::string name = "pushpull_sync_phase_seconds_sum{phase=\"" + phase + "\"} ";
  const size_t at = text.find(name);
  return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size()));
}

class PhaseDelayTest : public testing::TestWithParam<size_t> {};

TEST_P(PhaseDelayTest, ADelayAppearsInItsPhaseAndOnlyThere) {
  constexpr Duration kDelay = std::chrono::milliseconds(50);
  const auto delayed = static_cast<SyncPhase>(GetParam());
  SimJob* running = nullptr;
  bool is_armed = false;
  const auto slow_network = [&](bool is_slow) {
    InprocOptions options;
    if (is_slow) options.faults = {.delay_min = kDelay, .delay_max = kDelay};
    running->network().SetOptions(options);
  };
  const auto at = [&](SyncPhase phase) {
    if (!is_armed) return;
    if (phase == delayed) running->scheduler().Elapse(kDelay);
    // The wire is slow only while the push is on it, the reply only while that is.
    if (phase == SyncPhase::kQueue && delayed == SyncPhase::kWire) slow_network(true);
    if (phase == SyncPhase::kServerQueue) slow_network(false);
    if (phase == SyncPhase::kReplicate && delayed == SyncPhase::kReply) slow_network(true);
  };
  SimJob job({.settings = Settings(1, 1), .lanes = 1, .fault_point = at});
  running = &job;
  SimTrainer trainer(job, {SimTensor("w", 4, OptimizerKind::kSgd, Reduction::kMean)});
  ASSERT_TRUE(trainer.Start(1).ok());
  is_armed = true;

  ASSERT_TRUE(job.WaitAll(trainer.Push(0, 1)).ok());

  const std::string text = job.WorkerMetricsText(0);
  double total = 0;
  for (size_t i = 0; i < kSyncPhaseCount; ++i) {
    const double seconds = PhaseSeconds(text, std::string(kSyncPhaseNames[i]));
    total += seconds;
    EXPECT_NEAR(seconds, i == GetParam() ? 0.05 : 0, 0.005) << kSyncPhaseNames[i];
  }
  EXPECT_NEAR(total, 0.05, 0.005);
}

INSTANTIATE_TEST_SUITE_P(EveryPhase,
                         PhaseDelayTest,
                         testing::Range<size_t>(0, kSyncPhaseCount),
                         [](const auto& phase) {
                           return std::string(kSyncPhaseNames[phase.param]);
                         });

}  // namespace
}  // namespace pushpull
