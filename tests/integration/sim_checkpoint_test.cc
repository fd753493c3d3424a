// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints in whole simulated jobs: saved while workers train and servers die or move, restored
// to other numbers of servers, and the result is that of the undisturbed job, bit for bit.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/verify.h"
#include "tests/fakes/seeds.h"
#include "tests/fakes/sim_job.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr uint32_t kWorkers = 2;
constexpr char kFolder[] = "/checkpoints";
// Two chunks, one chunk and less: they land on different shards, servers and lanes.
const std::vector<int64_t> kSizes = {300'000, 7, 1000, 64, 5, 2000, 33};

using Values = std::vector<std::vector<float>>;

SimJobOptions Options(uint32_t servers, uint32_t replication, FileSystem& files) {
  return WithCheckpoints(DeterministicSim(kWorkers, servers, replication), kFolder, files);
}

// Workers that push gradients which depend on worker, step and tensor alone, from the step on that
// they are told to start at.
class Training {
 public:
  explicit Training(SimJob& job, int64_t more = 0) : job_(job) {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      WorkerNode& node = job_.StartWorker(w);
      node.Join();
      std::vector<TensorRegistration> registrations;
      values_[w].reserve(kSizes.size());
      for (size_t i = 0; i < kSizes.size(); ++i) {
        const int64_t size = kSizes[i] + more;
        values_[w].emplace_back(static_cast<size_t>(size), 0.5F);
        TensorSpec spec{.name = "t" + std::to_string(i), .dims = {size}};
        spec.optimizer.kind = OptimizerKind::kAdam;
        spec.optimizer.learning_rate = 0.01;
        registrations.push_back({.spec = spec, .value = values_[w][i]});
      }
      gradients_[w] = values_[w];
      pending.push_back(node.Register(registrations));
    }
    registered_ = job_.WaitAll(pending);
    if (!registered_.ok()) return;
    step_ = job_.worker(0).start_step().value();
    at_[step_] = values_[0];
  }

  // Begins the next step of every worker.
  std::vector<std::shared_ptr<PendingOperation>> Begin() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      for (size_t i = 0; i < kSizes.size(); ++i) {
        const float gradient = 0.1F * static_cast<float>((step_ * 7 + w * 3 + i) % 11) - 0.4F;
        std::fill(gradients_[w][i].begin(), gradients_[w][i].end(), gradient);
        auto handle =
            job_.worker(w).PushPull("t" + std::to_string(i), gradients_[w][i], values_[w][i], {});
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
      at_[step_] = values_[0];
    }
  }

  void Leave() {
    std::vector<std::shared_ptr<PendingOperation>> pending;
    for (uint32_t w = 0; w < kWorkers; ++w) pending.push_back(job_.worker(w).Leave());
    const absl::Status left = job_.WaitAll(pending);
    EXPECT_TRUE(left.ok()) << left;
  }

  // What the servers hold when nothing is under way.
  Values LastValues() {
    Values last = values_[0];
    for (size_t i = 0; i < kSizes.size(); ++i) {
      auto pulled = job_.worker(0).Pull("t" + std::to_string(i), last[i], Step{0});
      EXPECT_TRUE(pulled.ok() && job_.Wait(*pulled).ok());
    }
    return last;
  }

  const absl::Status& registered() const { return registered_; }
  uint64_t step() const { return step_; }
  const Values& values() const { return values_.at(0); }
  // What worker 0 had after so many steps.
  const Values& at(uint64_t step) const { return at_.at(step); }

 private:
  SimJob& job_;
  absl::Status registered_;
  uint64_t step_ = 0;
  std::map<uint32_t, Values> values_;
  std::map<uint32_t, Values> gradients_;
  std::map<uint64_t, Values> at_;
};

bool IsFinished(SimJob& job, uint64_t save) {
  return job.Status().checkpoint.finished >= save;
}

// Trains on until the save is over.
void TrainUntilSaved(SimJob& job, Training& training, uint64_t save) {
  for (int i = 0; i < 100 && !IsFinished(job, save); ++i) {
    training.StepsUntil(training.step() + 1);
    job.scheduler().RunFor(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(IsFinished(job, save));
}

// Of at most 60 steps.
const Values& Undisturbed(uint64_t steps) {
  static const std::map<uint64_t, Values> all = [] {
    MemoryFileSystem files;
    SimJob job(Options(2, 0, files));
    std::map<uint64_t, Values> values;
    Training training(job);
    for (uint64_t step = 1; step <= 60; ++step) {
      training.StepsUntil(step);
      values[step] = training.values();
    }
    return values;
  }();
  return all.at(steps);
}

void ExpectWhole(MemoryFileSystem& files, Step step) {
  const absl::StatusOr<VerifyReport> report = VerifyCheckpoint(files, StepFolder(kFolder, step));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->num_problems, 0U);
}

// A job that ends after so many steps of this run, and leaves the checkpoint of them.
void TrainToTheEnd(SimJobOptions options, uint64_t step) {
  SimJob job(std::move(options));
  Training training(job);
  training.StepsUntil(step);
  training.Leave();
  job.scheduler().RunFor(std::chrono::seconds(5));
  ASSERT_EQ(job.Status().checkpoint.step, Step{step}) << job.Status().checkpoint.failure;
}

// The next job goes on from what is there as if nothing had happened.
void ExpectNextJobGoesOn(MemoryFileSystem& files) {
  SimJob job(Options(2, 0, files));
  Training training(job);
  ASSERT_TRUE(training.registered().ok()) << training.registered();
  training.StepsUntil(60);
  EXPECT_EQ(training.values(), Undisturbed(60));
}

class RestoreTest : public testing::TestWithParam<uint32_t> {};

TEST_P(RestoreTest, ACheckpointOfFourServersGoesOnBitForBitOnAnyNumber) {
  MemoryFileSystem files;
  Values at_the_save;
  {
    SimJob job(Options(4, 0, files));
    Training training(job);
    training.StepsUntil(5);
    const absl::StatusOr<uint64_t> save = job.SaveCheckpoint();
    ASSERT_TRUE(save.ok()) << save.status();
    TrainUntilSaved(job, training, *save);
    ASSERT_EQ(job.Status().checkpoint.saved, 1U) << job.Status().checkpoint.failure;
    const uint64_t saved = job.Status().checkpoint.step.value();
    ASSERT_LE(saved, training.step());
    at_the_save = training.at(saved);
    ExpectWhole(files, Step{saved});
  }

  SimJob job(Options(GetParam(), 0, files));
  Training training(job);
  ASSERT_TRUE(training.registered().ok()) << training.registered();

  EXPECT_EQ(training.step(), job.Status().checkpoint.restored_step->value());
  EXPECT_EQ(training.at(training.step()), at_the_save);
  training.StepsUntil(20);
  EXPECT_EQ(training.values(), Undisturbed(20));
}

INSTANTIATE_TEST_SUITE_P(Servers, RestoreTest, testing::Values(1U, 3U, 4U, 7U));

TEST(SimCheckpointTest, AfterARestoreFollowersHoldWhatTheirPrimariesHold) {
  MemoryFileSystem files;
  TrainToTheEnd(Options(3, 1, files), 4);
  SimJob job(Options(3, 1, files));
  Training training(job);
  ASSERT_TRUE(training.registered().ok()) << training.registered();

  job.KillServer(1);
  training.StepsUntil(12);

  EXPECT_EQ(training.values(), Undisturbed(12));
}

TEST(SimCheckpointTest, AJobWithBackupWorkersIsSavedAsOfOneStep) {
  MemoryFileSystem files;
  Values at_the_save;
  SimJobOptions options = Options(3, 1, files);
  options.consistency.backup_workers = 1;
  {
    SimJob job(options);
    Training training(job);
    training.StepsUntil(5);
    const absl::StatusOr<uint64_t> save = job.SaveCheckpoint();
    ASSERT_TRUE(save.ok()) << save.status();
    TrainUntilSaved(job, training, *save);
    ASSERT_EQ(job.Status().checkpoint.saved, 1U) << job.Status().checkpoint.failure;
    const Step saved = job.Status().checkpoint.step;
    at_the_save = training.at(saved.value());
    ExpectWhole(files, saved);
  }

  SimJob job(options);
  Training training(job);

  ASSERT_TRUE(training.registered().ok()) << training.registered();
  EXPECT_EQ(training.at(training.step()), at_the_save);
  training.StepsUntil(20);
  EXPECT_EQ(job.worker(0).next_step(), Step{20});
  EXPECT_EQ(job.worker(1).next_step(), Step{20});
}

TEST(SimCheckpointTest, TheEndOfTheJobIsSaved) {
  MemoryFileSystem files;
  SimJob job(Options(3, 0, files));
  Training training(job);
  training.StepsUntil(7);

  training.Leave();
  job.scheduler().RunFor(std::chrono::seconds(5));

  EXPECT_EQ(job.Status().checkpoint.step, Step{7}) << job.Status().checkpoint.failure;
  EXPECT_EQ(job.Status().phase, JobPhase::kSucceeded);
  ExpectWhole(files, Step{7});
}

TEST(SimCheckpointTest, SavesComeByThemselvesAndOldOnesGo) {
  MemoryFileSystem files;
  SimJobOptions options = Options(2, 0, files);
  options.checkpoint->every = std::chrono::seconds(1);
  options.checkpoint->keep = 2;
  SimJob job(options);
  Training training(job);

  for (int i = 0; i < 8; ++i) {
    training.StepsUntil(training.step() + 1);
    job.scheduler().RunFor(std::chrono::milliseconds(700));
  }

  EXPECT_GE(job.Status().checkpoint.saved, 3U);
  EXPECT_EQ(job.Status().checkpoint.failures, 0U);
  EXPECT_EQ(ListCheckpoints(files, kFolder)->size(), 2U);
  EXPECT_THAT(job.CoordinatorMetricsText(), HasSubstr("pushpull_checkpoint_seconds_count"));
}

TEST(SimCheckpointTest, AFullDiskFailsTheSaveAndNotTheJob) {
  MemoryFileSystem files;
  SimJob job(Options(4, 0, files));
  Training training(job);
  training.StepsUntil(3);
  files.LimitBytes(1 << 20);
  TrainUntilSaved(job, training, *job.SaveCheckpoint());
  EXPECT_EQ(job.Status().checkpoint.failures, 1U);
  EXPECT_THAT(job.Status().checkpoint.failure, HasSubstr("server-"));
  EXPECT_THAT(files.paths(), testing::IsEmpty());

  files.LimitBytes(UINT64_MAX);
  TrainUntilSaved(job, training, *job.SaveCheckpoint());
  training.StepsUntil(40);

  EXPECT_EQ(job.Status().checkpoint.saved, 1U) << job.Status().checkpoint.failure;
  EXPECT_EQ(training.values(), Undisturbed(40));
}

TEST(SimCheckpointTest, ACheckpointOfAnotherModelStartsNoJob) {
  MemoryFileSystem files;
  TrainToTheEnd(Options(2, 0, files), 2);
  SimJob job(Options(2, 0, files));

  Training training(job, 1);

  EXPECT_FALSE(training.registered().ok());
  EXPECT_EQ(job.Status().phase, JobPhase::kFailed);
  EXPECT_EQ(job.Status().failure_exit_code, 2U);
  EXPECT_THAT(job.Status().failure, HasSubstr("tensor t0: has shape"));
}

TEST(SimCheckpointTest, ADamagedFileIsRefusedWithItsPlace) {
  MemoryFileSystem files;
  TrainToTheEnd(Options(2, 0, files), 2);
  for (const std::string& path : files.paths()) {
    if (path.find(".chunks") == std::string::npos) continue;
    std::vector<std::byte>& bytes = files.contents(path);
    bytes[bytes.size() / 2] ^= std::byte{4};
  }
  SimJob job(Options(3, 0, files));

  Training training(job);

  EXPECT_FALSE(training.registered().ok());
  EXPECT_EQ(job.Status().failure_exit_code, 3U);
  EXPECT_THAT(job.Status().failure, HasSubstr(".chunks at byte "));
}

// ---- other modes ----

class ModesTest : public testing::TestWithParam<std::pair<SyncMode, SyncMode>> {};

TEST_P(ModesTest, AJobGoesOnWhereTheOneBeforeEndedWhateverItsMode) {
  MemoryFileSystem files;
  Values saved;
  {
    SimJobOptions options = Options(3, 1, files);
    options.consistency.mode = GetParam().first;
    options.settings.deterministic = false;
    SimJob job(options);
    Training training(job);
    training.StepsUntil(6);
    saved = training.LastValues();
    training.Leave();
    job.scheduler().RunFor(std::chrono::seconds(5));
    ASSERT_EQ(job.Status().checkpoint.saved, 1U) << job.Status().checkpoint.failure;
  }
  SimJobOptions options = Options(2, 0, files);
  options.consistency.mode = GetParam().second;
  options.settings.deterministic = false;
  SimJob job(options);

  Training training(job);

  ASSERT_TRUE(training.registered().ok()) << training.registered();
  EXPECT_EQ(training.values(), saved);
  EXPECT_GE(training.step(), 6U);
  training.StepsUntil(training.step() + 10);
  EXPECT_NE(training.values(), saved);
}

INSTANTIATE_TEST_SUITE_P(All,
                         ModesTest,
                         testing::Values(std::pair(SyncMode::kAsync, SyncMode::kAsync),
                                         std::pair(SyncMode::kBounded, SyncMode::kAsync),
                                         std::pair(SyncMode::kSync, SyncMode::kAsync),
                                         std::pair(SyncMode::kAsync, SyncMode::kSync)));

TEST(SimCheckpointTest, AsyncUpdatesCountOnceAfterARestore) {
  MemoryFileSystem files;
  SimJobOptions options = Options(2, 0, files);
  options.consistency.mode = SyncMode::kAsync;
  options.settings.deterministic = false;
  {
    SimJob job(options);
    Training training(job);
    training.StepsUntil(6);
    training.Leave();
    job.scheduler().RunFor(std::chrono::seconds(5));
  }
  SimJob job(options);
  Training training(job);
  EXPECT_EQ(training.step(), 6U);
  training.StepsUntil(10);
  job.scheduler().RunFor(std::chrono::seconds(2));

  // Two workers with 10 updates each.
  EXPECT_EQ(job.Status().servers.front().stats.lowest_version, Step{20});
}

TEST(SimCheckpointTest, StepsContinueAfterAChangeOfModeBeforeTheRestore) {
  MemoryFileSystem files;
  SimJobOptions options = Options(2, 0, files);
  options.settings.deterministic = false;
  {
    SimJob job(options);
    Training training(job);
    training.StepsUntil(4);
    for (const SyncMode mode : {SyncMode::kAsync, SyncMode::kSync}) {
      ASSERT_TRUE(job.SetMode({.mode = mode}).ok());
      training.StepsUntil(training.step() + 8);
    }
    ASSERT_GT(job.Status().consistency.steps_skipped, 0U);
    training.Leave();
    job.scheduler().RunFor(std::chrono::seconds(5));
    ASSERT_EQ(job.Status().checkpoint.saved, 1U) << job.Status().checkpoint.failure;
  }
  SimJob job(options);

  Training training(job);

  EXPECT_EQ(training.step(), 20U);
}

// Kills a server at each of many moments of a save.
class DisturbedSaveTest : public testing::TestWithParam<int> {};

TEST_P(DisturbedSaveTest, AServerThatDiesInTheMiddleCostsNoMoreThanATry) {
  MemoryFileSystem files;
  {
    SimJob job(Options(3, 1, files));
    Training training(job);
    training.StepsUntil(3);
    const uint64_t save = *job.SaveCheckpoint();
    auto pending = training.Begin();
    for (int i = 0; i < GetParam() * 12; ++i) job.scheduler().RunOne();
    job.KillServer(1);
    ASSERT_TRUE(job.WaitAll(pending).ok());
    TrainUntilSaved(job, training, save);
    ASSERT_EQ(job.Status().checkpoint.succeeded, save) << job.Status().checkpoint.failure;
    ExpectWhole(files, job.Status().checkpoint.step);
  }

  ExpectNextJobGoesOn(files);
}

TEST_P(DisturbedSaveTest, AResizeInTheMiddleCostsNoMoreThanATry) {
  MemoryFileSystem files;
  {
    SimJob job(Options(3, 0, files));
    Training training(job);
    training.StepsUntil(3);
    ASSERT_TRUE(job.Resize(1).ok());
    for (int i = 0; i < GetParam() * 12; ++i) job.scheduler().RunOne();
    TrainUntilSaved(job, training, *job.SaveCheckpoint());
    ASSERT_EQ(job.Status().checkpoint.saved, 1U) << job.Status().checkpoint.failure;
    ExpectWhole(files, job.Status().checkpoint.step);
  }

  ExpectNextJobGoesOn(files);
}

TEST_P(DisturbedSaveTest, ACoordinatorThatDiesInTheMiddleCostsTheSave) {
  MemoryFileSystem files;
  {
    SimJob job(Options(3, 0, files));
    Training training(job);
    training.StepsUntil(3);
    ASSERT_TRUE(job.SaveCheckpoint().ok());
    auto pending = training.Begin();
    for (int i = 0; i < GetParam() * 12; ++i) job.scheduler().RunOne();
    job.KillCoordinator();
    ASSERT_TRUE(job.WaitAll(pending).ok());
    job.StartCoordinator();
    training.StepsUntil(8);
    job.scheduler().RunFor(std::chrono::seconds(5));
    ASSERT_EQ(job.Status().phase, JobPhase::kRunning);
    TrainUntilSaved(job, training, *job.SaveCheckpoint());
    ASSERT_EQ(job.Status().checkpoint.saved, 1U) << job.Status().checkpoint.failure;
    ExpectWhole(files, job.Status().checkpoint.step);
  }

  ExpectNextJobGoesOn(files);
}

TEST_P(DisturbedSaveTest, ACoordinatorThatDiesDuringTheRestoreCostsNothing) {
  MemoryFileSystem files;
  TrainToTheEnd(Options(4, 0, files), 5);
  SimJob job(Options(3, 0, files));
  SimExecutor fate(job.scheduler());
  fate.RunAfter(std::chrono::microseconds(500) * GetParam(), [&] {
    job.KillCoordinator();
    job.StartCoordinator();
  });

  Training training(job);
  ASSERT_TRUE(training.registered().ok()) << training.registered();
  EXPECT_EQ(training.step(), 5U);
  training.StepsUntil(20);

  EXPECT_EQ(training.values(), Undisturbed(20));
}

INSTANTIATE_TEST_SUITE_P(Moments,
                         DisturbedSaveTest,
                         testing::Range(0, 30, static_cast<int>(kSeedStride)));

}  // namespace
}  // namespace pushpull
