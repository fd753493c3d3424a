// SPDX-License-Identifier: Apache-2.0
//
// The first moments of a job: servers die, are told to end and are resized before the first step,
// with and without a checkpoint to start from, and nothing of it shows in the result.
#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/colocated_server.h"
#include "tests/fakes/memory_file_system.h"
#include "tests/fakes/seeds.h"
#include "tests/fakes/sim_job.h"
#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

constexpr uint32_t kWorkers = 2;
constexpr uint64_t kSteps = 4;
constexpr char kFolder[] = "/models";
const std::vector<int64_t> kSizes = {3, 150000, 200};

struct Cluster {
  uint32_t servers = 3;
  uint32_t replication = 0;
  uint64_t seed = 1;
  FileSystem* files = nullptr;  // the job starts from the newest checkpoint there, and saves one
};

SimJobOptions Options(const Cluster& cluster) {
  SimJobOptions options =
      DeterministicSim(kWorkers, cluster.servers, cluster.replication, cluster.seed);
  return cluster.files == nullptr ? options : WithCheckpoints(options, kFolder, *cluster.files);
}

std::string NameOf(size_t tensor) {
  return "t" + std::to_string(tensor);
}

using Operations = std::vector<std::shared_ptr<PendingOperation>>;

// Workers whose gradients depend on worker, step and tensor alone.
class Training {
 public:
  // `servers`: how many a launcher keeps alive.
  Training(SimJob& job, uint32_t servers) : job_(job), servers_(servers) {}

  void SetServers(uint32_t servers) { servers_ = servers; }

  void StartWorkers() {
    for (uint32_t w = 0; w < kWorkers; ++w) {
      WorkerNode& node = job_.StartWorker(w);
      pending_.push_back(node.Join());
      std::vector<TensorRegistration> registrations;
      for (size_t i = 0; i < kSizes.size(); ++i) {
        values_[w].emplace_back(static_cast<size_t>(kSizes[i]), 0.5F);
        registrations.push_back(
            {.spec = {.name = NameOf(i), .dims = {kSizes[i]}}, .value = values_[w].back()});
        registrations.back().spec.optimizer = {.kind = OptimizerKind::kAdam, .learning_rate = 0.01};
      }
      gradients_[w] = values_[w];
      pending_.push_back(node.Register(registrations));
    }
  }

  // Trains from where the job starts, `steps` steps.
  ::testing::AssertionResult Train(uint64_t steps) {
    if (const auto registered = RunToEnd(); !registered) return registered;
    const uint64_t first = job_.worker(0).start_step().value();
    for (uint64_t step = first; step < first + steps; ++step) {
      Push(step);
      if (const auto done = RunToEnd(); !done) return done;
    }
    return ::testing::AssertionSuccess();
  }

  void Leave() {
    for (uint32_t w = 0; w < kWorkers; ++w) pending_.push_back(job_.worker(w).Leave());
    EXPECT_TRUE(RunToEnd());
  }

  const std::vector<std::vector<float>>& values(uint32_t worker) const { return values_[worker]; }

 private:
  void Push(uint64_t step) {
    for (uint32_t w = 0; w < kWorkers; ++w) {
      for (size_t i = 0; i < kSizes.size(); ++i) {
        const float gradient = 0.1F * static_cast<float>((step * 7 + w * 3 + i) % 11) - 0.4F;
        std::ranges::fill(gradients_[w][i], gradient);
        auto handle = job_.worker(w).PushPull(NameOf(i), gradients_[w][i], values_[w][i], {});
        EXPECT_TRUE(handle.ok()) << handle.status();
        if (handle.ok()) pending_.push_back(*handle);
      }
    }
  }

  ::testing::AssertionResult RunToEnd() {
    const Operations pending = std::exchange(pending_, {});
    const bool is_done = job_.scheduler().RunUntil(
        [&] {
          KeepServers(job_, servers_);
          return std::ranges::all_of(pending, [](const auto& one) { return one->is_done(); });
        },
        std::chrono::minutes(2));
    if (!is_done) return ::testing::AssertionFailure() << "stuck; " << job_.Status().failure;
    for (const auto& one : pending) {
      const absl::Status status = one->Wait(Deadline::After(Duration::zero()));
      if (!status.ok()) return ::testing::AssertionFailure() << status;
    }
    return ::testing::AssertionSuccess();
  }

  SimJob& job_;
  uint32_t servers_;
  Operations pending_;
  std::vector<std::vector<float>> values_[kWorkers];
  std::vector<std::vector<float>> gradients_[kWorkers];
};

std::vector<std::vector<float>> Undisturbed(uint64_t steps) {
  SimJob job(Options({}));
  Training training(job, 3);
  training.StartWorkers();
  EXPECT_TRUE(training.Train(steps));
  return training.values(0);
}

// Leaves a checkpoint of `steps` steps.
void SaveTo(FileSystem& files, uint64_t steps) {
  SimJob job(Options({.files = &files}));
  Training training(job, 3);
  training.StartWorkers();
  ASSERT_TRUE(training.Train(steps));
  training.Leave();
  job.scheduler().RunFor(std::chrono::seconds(5));
  ASSERT_EQ(job.Status().checkpoint.step, Step{steps}) << job.Status().checkpoint.failure;
}

TEST(SimStartTest, WithoutTensorsDeadServersAreWaitedFor) {
  const auto expected = Undisturbed(kSteps);
  for (const uint32_t killed : {0U, 1U, 2U}) {
    SCOPED_TRACE("server " + std::to_string(killed));
    SimJob job(Options({}));
    Training training(job, 3);
    job.scheduler().RunFor(std::chrono::milliseconds(50));
    job.KillServer(killed);
    job.KillServer((killed + 1) % 3);
    job.scheduler().RunFor(std::chrono::milliseconds(50));

    training.StartWorkers();
    ASSERT_TRUE(training.Train(kSteps));

    EXPECT_EQ(training.values(0), expected);
  }
}

TEST(SimStartTest, WithoutTensorsServersThatAreToldToEndGoAtOnce) {
  SimJob job(Options({}));
  Training training(job, 3);
  job.scheduler().RunFor(std::chrono::milliseconds(50));

  job.LeaveServer(1);
  job.scheduler().RunFor(std::chrono::milliseconds(50));
  const bool had_ended = job.server_has_ended(1);
  training.StartWorkers();

  EXPECT_TRUE(had_ended);
  ASSERT_TRUE(training.Train(kSteps));
  EXPECT_EQ(training.values(0), Undisturbed(kSteps));
}

// The coordinator may give it shards as soon as it has registered, and the server learns of it
// later.
TEST(SimStartTest, AServerToldToEndBeforeItsWelcomeHandsOver) {
  const auto expected = Undisturbed(kSteps);
  for (int tenths = 0; tenths < 40; ++tenths) {
    SCOPED_TRACE(std::to_string(tenths) + " tenths of a millisecond after its start");
    SimJob job(Options({}));
    Training training(job, 3);
    job.scheduler().RunFor(std::chrono::milliseconds(50));
    job.control().SetDelay([] { return std::chrono::milliseconds(1); });
    job.KillServer(1);
    training.StartWorkers();
    job.scheduler().RunFor(std::chrono::milliseconds(50));
    job.StartServer(1);
    job.scheduler().RunFor(std::chrono::microseconds(100 * tenths));

    job.LeaveServer(1);

    ASSERT_TRUE(training.Train(kSteps));
    EXPECT_EQ(training.values(0), expected);
  }
}

TEST(SimStartTest, AServerToldToEndWithoutACoordinatorEnds) {
  SimJob job(Options({}));
  job.scheduler().RunFor(std::chrono::milliseconds(50));
  job.KillServer(1);
  job.KillCoordinator();
  job.StartServer(1);

  job.LeaveServer(1);
  job.scheduler().RunFor(std::chrono::seconds(3));

  EXPECT_TRUE(job.server_has_ended(1));
}

TEST(SimStartTest, WithoutTensorsServersComeAndGoWithTheSize) {
  for (const uint32_t servers : {1U, 2U, 5U}) {
    SCOPED_TRACE(std::to_string(servers) + " servers");
    SimJob job(Options({}));
    Training training(job, 3);
    job.scheduler().RunFor(std::chrono::milliseconds(50));

    ASSERT_TRUE(job.Resize(servers).ok());
    training.SetServers(servers);
    training.StartWorkers();
    ASSERT_TRUE(training.Train(kSteps));

    EXPECT_EQ(training.values(0), Undisturbed(kSteps));
    EXPECT_TRUE(IsWhole(job, servers));
  }
}

// Nothing can be lost as long as there is nothing: no mode fails a job for it.
TEST(SimStartTest, WithoutValuesNoModeFailsForAServer) {
  const std::vector<Consistency> modes = {{.gated = true},
                                          {.backup_workers = 1},
                                          {.mode = SyncMode::kBounded, .staleness = 1},
                                          {.mode = SyncMode::kAsync}};
  for (const Consistency& mode : modes) {
    int starting = 0;
    for (int tenths = 0; tenths < 60; ++tenths) {
      SCOPED_TRACE(Describe(mode) + ", " + std::to_string(tenths) + " tenths of a millisecond");
      SimJobOptions options = Options({});
      options.settings.deterministic = false;
      options.consistency = mode;
      options.repairs_losses = true;
      SimJob job(std::move(options));
      Training training(job, 3);
      job.scheduler().RunFor(std::chrono::milliseconds(50));
      job.control().SetDelay([] { return std::chrono::milliseconds(1); });
      training.StartWorkers();
      job.scheduler().RunFor(std::chrono::microseconds(100 * tenths));

      job.KillServer(1);
      job.scheduler().RunFor(std::chrono::milliseconds(1));  // the coordinator has heard of it
      if (job.Status().phase == JobPhase::kRunning) break;
      ++starting;

      ASSERT_TRUE(training.Train(kSteps));
    }
    EXPECT_GT(starting, 20) << Describe(mode);
  }
}

// Kills as many servers as there are followers of each shard, and whoever is told to end besides,
// at any time from the first process on.
void ExpectThatFaultsDoNotShow(uint64_t seed, uint32_t replication, FileSystem* files) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", replication " + std::to_string(replication) +
               (files == nullptr ? "" : ", from a checkpoint"));
  std::mt19937_64 random(seed);
  const uint32_t servers = replication + 1 + static_cast<uint32_t>(random() % 3);
  SimJob job(
      Options({.servers = servers, .replication = replication, .seed = seed, .files = files}));
  Training training(job, servers);
  const auto some_time = [&] {
    job.scheduler().RunFor(std::chrono::microseconds(random() % 6000));
  };
  const auto workers_start = static_cast<uint32_t>(random() % (replication + 1));
  for (uint32_t fault = 0; fault < replication; ++fault) {
    if (fault == workers_start) training.StartWorkers();
    some_time();
    const auto server = static_cast<uint32_t>(random() % servers);
    if (!job.has_server(server)) continue;
    random() % 3 == 0 ? job.LeaveServer(server) : job.KillServer(server);
  }
  if (workers_start == replication) training.StartWorkers();

  ASSERT_TRUE(training.Train(kSteps));

  EXPECT_EQ(training.values(0), Undisturbed(files == nullptr ? kSteps : 2 * kSteps));
}

TEST(SimStartTest, FaultsAtTheStartDoNotShow) {
  const Seeds seeds = SeedsToRun(40);
  for (uint64_t seed = seeds.first; seed != seeds.end(); ++seed)
    ExpectThatFaultsDoNotShow(seed, 1 + seed % 2, nullptr);
}

TEST(SimStartTest, FaultsWhileACheckpointIsReadDoNotShow) {
  const Seeds seeds = SeedsToRun(40);
  for (uint64_t seed = seeds.first; seed != seeds.end(); ++seed) {
    MemoryFileSystem files;
    SaveTo(files, kSteps);
    ExpectThatFaultsDoNotShow(seed, 1 + seed % 2, &files);
  }
}

TEST(SimStartTest, ServersMayComeWhileACheckpointIsRead) {
  const Seeds seeds = SeedsToRun(40);
  for (uint64_t seed = seeds.first; seed != seeds.end(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    MemoryFileSystem files;
    SaveTo(files, kSteps);
    SimJobOptions options = Options({.seed = seed, .files = &files});
    options.has_colocated_servers = true;
    SimJob job(std::move(options));
    Training training(job, 3);
    training.StartWorkers();
    for (uint32_t w = 0; w < kWorkers; ++w) {
      job.scheduler().RunFor(std::chrono::microseconds(random() % 10000));
      job.StartServer(ServerBeside(WorkerId{w}).value());
    }

    ASSERT_TRUE(training.Train(kSteps));

    EXPECT_EQ(training.values(0), Undisturbed(2 * kSteps));
  }
}

}  // namespace
}  // namespace pushpull
