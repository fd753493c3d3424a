// SPDX-License-Identifier: Apache-2.0
//
// Servers that are lost with the only copy of their shards, in whole simulated jobs: the values
// come from the workers, the result is that of the undisturbed job, bit for bit, and what was lost
// is said.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/seeds.h"
#include "tests/fakes/sim_job.h"

namespace pushpull {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

// Two chunks, one chunk and less: they land on different shards, servers and lanes.
const std::vector<int64_t> kSizes = {300'000, 7, 1000, 64, 5, 2000, 33};
constexpr char kFolder[] = "/checkpoints";

struct Shape {
  uint32_t workers = 2;
  uint32_t servers = 2;
  uint64_t seed = 1;
  bool is_lossy = false;         // the network
  bool is_slow_to_hear = false;  // control messages take up to 5 ms
  double momentum = 0;
  bool keeps_value = true;
  FileSystem* files = nullptr;  // with checkpoints
};

// Workers that push gradients which depend on worker, step and tensor alone, each as fast as it
// can.
class Training {
 public:
  explicit Training(const Shape& shape)
      : shape_(shape), random_(shape.seed), job_(OptionsOf(shape)) {
    if (shape.is_slow_to_hear) {
      job_.control().SetDelay([this] { return std::chrono::microseconds(random_() % 5000); });
    }
    for (uint32_t w = 0; w < shape.workers; ++w) StartWorker(w);
  }

  // Until every worker has done `steps`; false where that takes longer than `limit`.
  bool RunTo(uint64_t steps, Duration limit = minutes(5)) {
    target_ = steps;
    return job_.scheduler().RunUntil(
               [&] {
                 bool all_done = problem_.empty();
                 for (auto& [w, worker] : workers_) all_done = Drive(w, worker) && all_done;
                 return all_done || !problem_.empty();
               },
               limit) &&
           problem_.empty();
  }
  // For so long, whatever comes of it.
  void RunFor(Duration time, uint64_t steps) { RunTo(steps, time); }

  void Leave() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (const auto& [w, worker] : workers_) pending.push_back(job_.worker(w).Leave());
    const absl::Status left = job_.WaitAll(pending);
    EXPECT_TRUE(left.ok()) << left;
  }

  bool IsSettled() {
    return job_.scheduler().RunUntil([&] { return job_.Status().shards_moving == 0; }, minutes(5));
  }

  SimJob& job() { return job_; }
  const std::vector<std::vector<float>>& values(uint32_t worker) const {
    return workers_.at(worker).values;
  }
  uint64_t step(uint32_t worker) const { return workers_.at(worker).step; }
  const std::string& problem() const { return problem_; }

 private:
  struct Worker {
    std::shared_ptr<PendingOperation> registration;
    bool is_registered = false;
    uint64_t step = 0;
    std::vector<std::shared_ptr<PendingOperation>> pending;
    std::vector<std::vector<float>> values;
    std::vector<std::vector<float>> gradients;
  };

  static SimJobOptions OptionsOf(const Shape& shape) {
    SimJobOptions options{.settings = {.job = "sim",
                                       .workers = shape.workers,
                                       .servers = shape.servers,
                                       .deterministic = true},
                          .seed = shape.seed,
                          .repairs_losses = true,
                          .files = shape.files};
    if (shape.files != nullptr)
      options.checkpoint = CheckpointPolicy{.folder = kFolder, .every = std::chrono::hours(100)};
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs
    if (std::getenv("PUSHPULL_SIM_LOG") != nullptr) options.log_level = LogLevel::kDebug;
    SetNetwork(options, milliseconds(2), shape.is_lossy);
    return options;
  }

  void StartWorker(uint32_t w) {
    Worker& worker = workers_[w];
    WorkerNode& node = job_.StartWorker(w);
    node.Join();
    std::vector<TensorRegistration> registrations;
    worker.values.reserve(kSizes.size());
    for (size_t i = 0; i < kSizes.size(); ++i) {
      worker.values.emplace_back(static_cast<size_t>(kSizes[i]), 0.5F);
      TensorSpec spec{.name = "t" + std::to_string(i), .dims = {kSizes[i]}};
      spec.optimizer.kind = OptimizerKind::kSgd;
      spec.optimizer.learning_rate = 0.01;
      spec.optimizer.momentum = shape_.momentum;
      registrations.push_back(
          {.spec = spec, .value = worker.values[i], .keeps_value = shape_.keeps_value});
    }
    worker.gradients = worker.values;
    worker.registration = node.Register(registrations);
  }

  // True: it has come to the target.
  bool Drive(uint32_t w, Worker& worker) {
    if (!worker.is_registered) {
      if (!worker.registration->is_done()) return false;
      Check(w, *worker.registration);
      worker.is_registered = true;
      worker.step = job_.worker(w).start_step().value();
    }
    for (const auto& operation : worker.pending) {
      if (!operation->is_done()) return false;
    }
    if (!worker.pending.empty()) {
      for (const auto& operation : worker.pending) Check(w, *operation);
      worker.pending.clear();
      ++worker.step;
    }
    if (worker.step >= target_ || !problem_.empty()) return true;
    for (size_t i = 0; i < kSizes.size(); ++i) {
      std::vector<float>& gradient = worker.gradients[i];
      for (size_t k = 0; k < gradient.size(); ++k)
        gradient[k] = 0.1F * static_cast<float>((worker.step * 7 + w * 3 + i + k) % 11) - 0.4F;
      auto handle =
          job_.worker(w).PushPull("t" + std::to_string(i), gradient, worker.values[i], {});
      if (handle.ok()) worker.pending.push_back(*handle);
    }
    return false;
  }

  void Check(uint32_t w, PendingOperation& operation) {
    const absl::Status status = operation.Wait(Deadline::After(Duration::zero()));
    if (!status.ok() && problem_.empty())
      problem_ = absl::StrCat("worker-", w, ": ", status.ToString());
  }

  const Shape shape_;
  std::mt19937_64 random_;
  SimJob job_;
  std::map<uint32_t, Worker> workers_;
  uint64_t target_ = 0;
  std::string problem_;
};

constexpr uint64_t kSteps = 16;

// What the job has after kSteps where nothing happens.
std::vector<std::vector<float>> Undisturbed(uint32_t workers, double momentum = 0) {
  static std::map<std::pair<uint32_t, bool>, std::vector<std::vector<float>>> known;
  auto& values = known[{workers, momentum > 0}];
  if (values.empty()) {
    Training training({.workers = workers, .momentum = momentum});
    EXPECT_TRUE(training.RunTo(kSteps)) << training.problem();
    values = training.values(0);
  }
  return values;
}

void ExpectUndisturbed(const Training& training, const Shape& shape) {
  const auto expected = Undisturbed(shape.workers, shape.momentum);
  for (uint32_t w = 0; w < shape.workers; ++w)
    EXPECT_TRUE(training.values(w) == expected) << "worker-" << w << " seed " << shape.seed;
}

class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}
  uint32_t operator()(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

 private:
  std::mt19937_64 random_;
};

Shape DrawShape(uint64_t seed, Draws& draw) {
  return {.workers = 2 + draw(2),
          .servers = 1 + draw(3),
          .seed = seed,
          .is_lossy = draw(3) == 0,
          .is_slow_to_hear = draw(2) == 0};
}

// Kills one to three servers, also while what another had is being rebuilt; each is started again
// sooner or later, or the others take over.
void KillSome(Training& training, const Shape& shape, Draws& draw) {
  SimJob& job = training.job();
  uint32_t num_here = shape.servers;
  for (uint32_t kills = 1 + draw(3); kills > 0; --kills) {
    training.RunFor(std::chrono::microseconds(draw(60'000)), kSteps);
    if (job.Status().phase != JobPhase::kRunning) continue;
    const uint32_t victim = draw(shape.servers);
    if (!job.has_server(victim)) continue;
    job.KillServer(victim);
    const bool stays_away = num_here > 1 && draw(4) == 0;
    if (stays_away) {
      --num_here;
      continue;
    }
    training.RunFor(milliseconds(draw(3) == 0 ? 5000 : draw(40)), kSteps);
    job.StartServer(victim);
  }
}

TEST(SimLossTest, AKilledServerIsRebuiltFromWorkersWithEqualResult) {
  const Seeds seeds = SeedsToRun(150);
  uint64_t repaired = 0;
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    Draws draw(seed);
    const Shape shape = DrawShape(seed, draw);
    Training training(shape);
    SimJob& job = training.job();
    KillSome(training, shape, draw);

    ASSERT_TRUE(training.RunTo(kSteps))
        << "seed " << seed << ": " << training.problem() << job.Status().failure;

    ExpectUndisturbed(training, shape);
    for (const StateLoss& loss : job.Status().state_losses) {
      if (loss.from_workers > 0) ++repaired;
      EXPECT_EQ(loss.outdated, 0U) << seed;
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(repaired, seeds.count / 2);  // the others were killed before the first step
}

// A server that the coordinator has given up goes on with what it was doing, and comes back after
// another has taken its place: it must change nothing.
TEST(SimLossTest, AnOldPrimaryThatComesBackTooLateChangesNothing) {
  const Seeds seeds = SeedsToRun(100);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    Draws draw(seed);
    const Shape shape = DrawShape(seed, draw);
    Training training(shape);
    SimJob& job = training.job();
    training.RunFor(std::chrono::microseconds(10'000 + draw(60'000)), kSteps);
    const uint32_t victim = draw(shape.servers);
    job.SuspectServer(victim);
    const bool has_successor = shape.servers == 1 || draw(2) == 0;
    if (has_successor) job.StartServer(victim);
    training.RunFor(has_successor ? milliseconds(draw(60)) : seconds(21), kSteps);

    job.ReturnSuspected();

    ASSERT_TRUE(training.RunTo(kSteps))
        << "seed " << seed << ": " << training.problem() << job.Status().failure;
    ASSERT_TRUE(training.IsSettled()) << seed;
    ExpectUndisturbed(training, shape);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(SimLossTest, AServerWhoseSessionBreaksComesBackWithEverything) {
  const Seeds seeds = SeedsToRun(60);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    Draws draw(seed);
    Shape shape = DrawShape(seed, draw);
    shape.momentum = 0.9;  // which no worker has
    Training training(shape);
    SimJob& job = training.job();
    training.RunFor(std::chrono::microseconds(10'000 + draw(50'000)), kSteps);
    const uint32_t victim = draw(shape.servers);
    job.CutOffServer(victim);
    job.BreakSession(victim);
    training.RunFor(milliseconds(draw(2) == 0 ? draw(100) : 10'000), kSteps);

    job.ReachAgain();

    ASSERT_TRUE(training.RunTo(kSteps))
        << "seed " << seed << ": " << training.problem() << job.Status().failure;
    ASSERT_TRUE(training.IsSettled()) << seed;
    ExpectUndisturbed(training, shape);
    const std::vector<StateLoss> losses = job.Status().state_losses;
    ASSERT_EQ(losses.size(), 1U);
    EXPECT_EQ(losses[0].returned, losses[0].shards.size());
    EXPECT_THAT(ToString(losses[0]), HasSubstr("back with everything"));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(SimLossTest, ANewCoordinatorContinuesWithRebuiltShards) {
  const Seeds seeds = SeedsToRun(80);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    Draws draw(seed);
    Shape shape = DrawShape(seed, draw);
    shape.servers = 2 + draw(2);
    Training training(shape);
    SimJob& job = training.job();
    training.RunFor(std::chrono::microseconds(10'000 + draw(40'000)), kSteps);
    const uint32_t victim = draw(shape.servers);
    job.KillServer(victim);
    // Before, while and after the shards are rebuilt.
    training.RunFor(std::chrono::microseconds(draw(15'000)), kSteps);
    job.StartServer(victim);
    training.RunFor(std::chrono::microseconds(draw(30'000)), kSteps);
    job.KillCoordinator();
    training.RunFor(milliseconds(draw(100)), kSteps);

    job.StartCoordinator();

    ASSERT_TRUE(training.RunTo(kSteps))
        << "seed " << seed << ": " << training.problem() << job.Status().failure;
    ExpectUndisturbed(training, shape);
    if (testing::Test::HasFailure()) return;
  }
}

// The step of the checkpoint; no worker has gone beyond it. 0: none was saved.
uint64_t SaveAndStopThere(Training& training) {
  SimJob& job = training.job();
  if (!training.RunTo(4) || !job.SaveCheckpoint().ok()) return 0;
  for (uint64_t step = 5; step < kSteps; ++step) {
    if (!training.RunTo(step)) return 0;
    job.scheduler().RunUntil([&] { return job.Status().checkpoint.saved == 1; }, seconds(1));
    if (job.Status().checkpoint.saved == 1)
      return job.Status().checkpoint.step == Step{step} ? step : 0;
  }
  return 0;
}

TEST(SimLossTest, TheOptimizersStateComesFromTheLastCheckpoint) {
  MemoryFileSystem files;
  const Shape shape{.momentum = 0.9, .files = &files};
  Training training(shape);
  SimJob& job = training.job();
  const uint64_t saved = SaveAndStopThere(training);
  ASSERT_GT(saved, 0U);

  job.KillServer(0);
  job.StartServer(0);

  ASSERT_TRUE(training.RunTo(kSteps)) << training.problem();
  // Nothing was done since it was saved: so nothing was lost.
  ExpectUndisturbed(training, shape);
  const std::vector<StateLoss> losses = job.Status().state_losses;
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].state_step, Step{saved});
  EXPECT_THAT(ToString(losses[0]),
              HasSubstr(absl::StrCat("optimizer state of the checkpoint of step ", saved)));
  EXPECT_THAT(ToString(losses[0]), HasSubstr("with server-0"));
}

TEST(SimLossTest, WithoutACheckpointZeroOptimizerStateIsReported) {
  const Shape shape{.momentum = 0.9};
  Training training(shape);
  ASSERT_TRUE(training.RunTo(8));
  const auto before = training.values(0);

  training.job().KillServer(1);
  training.job().StartServer(1);

  ASSERT_TRUE(training.RunTo(kSteps)) << training.problem();
  EXPECT_TRUE(training.values(0) == training.values(1));
  const std::vector<StateLoss> losses = training.job().Status().state_losses;
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_TRUE(losses[0].is_repaired);
  EXPECT_TRUE(losses[0].has_optimizer_state);
  EXPECT_EQ(losses[0].state_step, std::nullopt);
  EXPECT_EQ(losses[0].lowest_version, Step{8});
  EXPECT_EQ(losses[0].from_workers, losses[0].chunks);
  EXPECT_THAT(ToString(losses[0]), HasSubstr("optimizer state zero"));
}

// Its program goes on after the last step, with other things.
TEST(SimLossTest, AWorkerLeavesOnlyWhenEveryShardHasAPrimary) {
  Training training({});
  ASSERT_TRUE(training.RunTo(4));
  training.job().KillServer(1);
  training.RunFor(milliseconds(100), 4);

  const auto leave = training.job().worker(0).Leave();
  training.RunFor(seconds(5), 4);
  const bool has_left_before = leave->is_done();
  training.job().StartServer(1);
  const absl::Status left = training.job().WaitAll({leave});

  EXPECT_FALSE(has_left_before);
  EXPECT_TRUE(left.ok()) << left;
}

// What the last workers leave behind is the job's result.
TEST(SimLossTest, AShardLostWhenAllWorkersLeaveIsRebuilt) {
  MemoryFileSystem files;
  Training training({.files = &files});
  SimJob& job = training.job();
  ASSERT_TRUE(training.RunTo(4));
  job.KillServer(1);
  job.StartServer(1);

  training.Leave();

  EXPECT_TRUE(
      job.scheduler().RunUntil([&] { return job.Status().checkpoint.step == Step{4}; }, minutes(1)))
      << job.Status().checkpoint.failure;
  EXPECT_EQ(job.Status().phase, JobPhase::kSucceeded);
}

TEST(SimLossTest, WithoutAnyCopyTheJobFailsAndNamesTheShard) {
  Training training({.keeps_value = false});
  ASSERT_TRUE(training.RunTo(4));

  training.job().KillServer(1);
  training.job().StartServer(1);

  EXPECT_FALSE(training.RunTo(kSteps));
  EXPECT_EQ(training.job().Status().phase, JobPhase::kFailed);
  EXPECT_THAT(training.job().Status().failure, HasSubstr("cannot be rebuilt: shard "));
  EXPECT_THAT(training.job().Status().failure, HasSubstr("no worker has a copy"));
}

TEST(SimLossTest, WithoutAnyCopyTheValuesComeFromACheckpoint) {
  MemoryFileSystem files;
  const Shape shape{.keeps_value = false, .files = &files};
  Training training(shape);
  SimJob& job = training.job();
  const uint64_t saved = SaveAndStopThere(training);
  ASSERT_GT(saved, 0U);

  job.KillServer(0);
  job.StartServer(0);

  ASSERT_TRUE(training.RunTo(kSteps)) << training.problem();
  ExpectUndisturbed(training, shape);
  const std::vector<StateLoss> losses = job.Status().state_losses;
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].from_checkpoint, losses[0].chunks);
  EXPECT_EQ(losses[0].state_step, std::nullopt);  // there is none
  EXPECT_EQ(losses[0].lowest_version, Step{saved});
  EXPECT_EQ(losses[0].outdated, 0U);
}

}  // namespace
}  // namespace pushpull
