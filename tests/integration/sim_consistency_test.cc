// SPDX-License-Identifier: Apache-2.0
//
// The modes Async and Bounded, and changes between all three, in whole simulated jobs. Worker w
// pushes 1 to value w and 0 to all others, which is subtracted: so each value that anybody reads
// says how many updates of which worker it has in it. A failing case prints its seed and replays.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/seeds.h"
#include "tests/fakes/sim_job.h"
#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

constexpr uint32_t kWorkers = 4;
constexpr size_t kTensors = 3;

struct FleetOptions {
  uint64_t seed = 1;
  Consistency consistency;
  uint32_t servers = 2;
  uint32_t replication = 0;
  double faults = 0;  // probability of loss, of duplication and of reordering of a frame
  uint64_t steps = 100;
  double slowness = 1;  // of worker 0's compute
};

SimJobOptions JobOptionsOf(const FleetOptions& options) {
  SimJobOptions job{.settings = {.job = "sim",
                                 .workers = kWorkers,
                                 .servers = options.servers,
                                 .replication = options.replication},
                    .consistency = options.consistency,
                    .seed = options.seed};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs
  if (std::getenv("PUSHPULL_SIM_LOG") != nullptr) job.log_level = LogLevel::kDebug;
  job.network.faults = {.delay_max = std::chrono::milliseconds(1),
                        .loss = options.faults,
                        .duplication = options.faults,
                        .reordering = options.faults};
  return job;
}

// Workers that compute for a random time, push all tensors, look at what comes back, and so on.
class Fleet {
 public:
  explicit Fleet(const FleetOptions& options)
      : options_(options), random_(options.seed), job_(JobOptionsOf(options)) {
    for (uint32_t w = 0; w < kWorkers; ++w) Start(w);
  }

  SimJob& job() { return job_; }
  uint64_t reads() const { return reads_; }
  uint64_t steps_of(uint32_t worker) const { return workers_.at(worker).steps; }
  uint64_t Draw(uint64_t below) { return random_() % below; }

  // Runs until every worker has done its steps. Empty: every read has been as promised.
  std::string Finish() {
    return RunUntil([&] {
      return std::all_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
        return entry.second.is_registered && entry.second.pending.empty() &&
               entry.second.steps >= options_.steps;
      });
    });
  }

  std::string RunUntil(const std::function<bool()>& condition) {
    const bool has_ended = job_.scheduler().RunUntil(
        [&] {
          KeepServers(job_, options_.servers);
          for (auto& [index, worker] : workers_) Drive(index, worker);
          return !problem_.empty() || condition();
        },
        std::chrono::hours(1));
    if (!has_ended && problem_.empty()) {
      problem_ = absl::StrCat("stuck: ", job_.Status().failure);
      for (const auto& [index, worker] : workers_)
        absl::StrAppend(&problem_, "; worker-", index, " has done ", worker.steps);
    }
    return problem_;
  }

  // Its process is replaced by another.
  void Replace(uint32_t index) {
    Worker& worker = workers_.at(index);
    job_.KillWorker(index);
    worker.uncertain += worker.pending.empty() ? 0 : 1;
    ++replaced_;
    Start(index);
  }

  bool IsWhole() { return pushpull::IsWhole(job_, options_.servers); }

  void ReplaceIfAllAreThere(uint32_t index) {
    const bool are_there = std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) {
      return worker.second.is_registered;
    });
    if (are_there) Replace(index);
  }

  // How often worker `of` is in what worker `reader` has read last of `tensor`.
  uint64_t Seen(uint32_t reader, size_t tensor, uint32_t of) const {
    return static_cast<uint64_t>(-workers_.at(reader).values[tensor][of]);
  }

  // Brings what there is to every worker.
  std::string ReadAll() {
    std::vector<std::shared_ptr<PendingOperation>> reads;
    for (auto& [index, worker] : workers_) {
      for (size_t t = 0; t < kTensors; ++t) {
        auto read = job_.worker(index).Pull(absl::StrCat("t", t), worker.values[t], Step{0});
        if (!read.ok()) return read.status().ToString();
        reads.push_back(*read);
      }
    }
    const absl::Status done = job_.WaitAll(reads);
    return done.ok() ? "" : done.ToString();
  }

  // Every answered push of every worker is there once, and nothing else, whoever looks.
  std::string CheckSums() {
    if (std::string problem = ReadAll(); !problem.empty()) return problem;
    for (const auto& [reader, unused] : workers_) {
      for (size_t t = 0; t < kTensors; ++t) {
        for (const auto& [of, worker] : workers_) {
          const uint64_t seen = Seen(reader, t, of);
          const bool is_in_all = worker.uncertain > 0 || seen == Seen(reader, 0, of);
          if (is_in_all && seen + worker.droppable >= worker.steps &&
              seen <= worker.steps + worker.uncertain) {
            continue;
          }
          return absl::StrCat("worker-",
                              reader,
                              " sees ",
                              seen,
                              " updates of worker-",
                              of,
                              " in t",
                              t,
                              ", which has done ",
                              worker.steps);
        }
      }
    }
    return "";
  }

  // Reads after which a worker looks how far the others are: `lag` steps behind it at most.
  void ExpectBound(uint64_t lag) { bound_ = lag; }
  // Whether workers push on after the last of their steps.
  void KeepGoing(bool keeps_going) { keeps_going_ = keeps_going; }
  void StopPausing(uint32_t worker) { paused_.erase(worker); }
  // The worker begins no further step.
  void Pause(uint32_t worker) { paused_.insert(worker); }

 private:
  struct Worker {
    bool is_registered = false;
    bool is_computing = false;
    std::shared_ptr<PendingOperation> registration;
    std::vector<std::shared_ptr<PendingOperation>> pending;
    bool is_reading = false;  // `pending` are pulls
    uint64_t steps = 0;       // whose pushes are answered, over all its processes
    uint64_t uncertain = 0;   // pushes that died with a process; each may count or not
    uint64_t droppable = 0;   // of `steps`, those that may have found no admission
    bool may_drop = false;    // this applies to what is under way
    std::vector<std::vector<float>> values;
    std::vector<float> gradient;
  };

  void Start(uint32_t index) {
    Worker& worker = workers_[index];
    worker.is_registered = false;
    worker.is_computing = false;
    worker.pending.clear();
    WorkerNode& node = job_.StartWorker(index);
    node.Join();
    worker.values.assign(kTensors, std::vector<float>(kWorkers, 0));
    worker.gradient.assign(kWorkers, 0);
    worker.gradient[index] = 1;
    std::vector<TensorRegistration> registrations;
    for (size_t t = 0; t < kTensors; ++t) {
      TensorSpec spec{
          .name = absl::StrCat("t", t), .dims = {kWorkers}, .reduction = Reduction::kSum};
      spec.optimizer.kind = OptimizerKind::kSgd;
      spec.optimizer.learning_rate = 1;
      registrations.push_back({.spec = spec, .value = worker.values[t]});
    }
    worker.registration = node.Register(registrations);
  }

  void Drive(uint32_t index, Worker& worker) {
    if (!worker.is_registered) {
      if (!worker.registration->is_done()) return;
      Check(*worker.registration, index);
      worker.is_registered = true;
    }
    if (worker.is_computing) return;
    if (!worker.pending.empty()) {
      const bool all_done = std::all_of(worker.pending.begin(),
                                        worker.pending.end(),
                                        [](const auto& one) { return one->is_done(); });
      if (!all_done) return;
      for (const auto& one : worker.pending) Check(*one, index);
      worker.pending.clear();
      if (!worker.is_reading) FinishStep(index, worker);
      CheckRead(index, worker);
    }
    const bool has_done_all = worker.steps >= options_.steps && !keeps_going_;
    if (has_done_all || paused_.contains(index)) return;
    worker.is_computing = true;
    const double longest = 2000 * (index == 0 ? options_.slowness : 1);
    const auto compute = std::chrono::microseconds(Draw(static_cast<uint64_t>(longest)));
    executor_.RunAfter(compute, [this, index] {
      Worker& computed = workers_.at(index);
      computed.is_computing = false;
      if (computed.is_registered && computed.pending.empty()) Begin(index, computed);
    });
  }

  void FinishStep(uint32_t index, Worker& worker) {
    ++worker.steps;
    if (worker.may_drop) ++worker.droppable;
    if (!worker.may_drop || !job_.Status().consistency.admits()) return;
    // All of one version, and each version has the same contributors everywhere.
    for (size_t t = 1; t < kTensors && replaced_ == 0; ++t) {
      if (worker.values[t] == worker.values[0]) continue;
      return Report("worker-", index, " has steps with other contributors in t", t);
    }
  }

  bool MayDrop() {
    const JobStatus status = job_.Status();
    return status.consistency.admits() || status.is_mode_changing;
  }

  // Now and then a read of its own.
  void Begin(uint32_t index, Worker& worker) {
    worker.is_reading = Draw(4) == 0;
    worker.may_drop = MayDrop();
    for (size_t t = 0; t < kTensors; ++t) {
      const std::string name = absl::StrCat("t", t);
      WorkerNode& node = job_.worker(index);
      auto handle = worker.is_reading ? node.Pull(name, worker.values[t], Step{0})
                                      : node.PushPull(name, worker.gradient, worker.values[t], {});
      if (!handle.ok()) return Report("worker-", index, ": ", handle.status().ToString());
      worker.pending.push_back(*handle);
    }
  }

  void CheckRead(uint32_t index, const Worker& worker) {
    for (size_t t = 0; t < kTensors; ++t) {
      ++reads_;
      const uint64_t own = Seen(index, t, index);
      if (own + worker.droppable < worker.steps || own > worker.steps + worker.uncertain) {
        return Report("worker-",
                      index,
                      " has done ",
                      worker.steps,
                      " steps and sees ",
                      own,
                      " of its own updates in t",
                      t);
      }
      for (uint32_t other = 0; bound_ && other < kWorkers; ++other) {
        const uint64_t seen = Seen(index, t, other);
        if (seen + *bound_ >= worker.steps) continue;
        return Report("worker-",
                      index,
                      " has done ",
                      worker.steps,
                      " steps and sees only ",
                      seen,
                      " updates of worker-",
                      other,
                      " in t",
                      t);
      }
    }
  }

  void Check(PendingOperation& operation, uint32_t index) {
    const absl::Status status = operation.Wait(Deadline::After(Duration::zero()));
    if (!status.ok()) Report("worker-", index, ": ", status.ToString());
  }

  template <typename... Parts>
  void Report(const Parts&... parts) {
    if (problem_.empty()) problem_ = absl::StrCat(parts...);
  }

  const FleetOptions options_;
  std::mt19937_64 random_;
  SimJob job_;
  SimExecutor executor_{job_.scheduler()};
  std::map<uint32_t, Worker> workers_;
  std::set<uint32_t> paused_;
  std::optional<uint64_t> bound_;
  bool keeps_going_ = false;
  uint64_t reads_ = 0;
  uint32_t replaced_ = 0;  // workers
  std::string problem_;
};

constexpr Consistency kAsync{.mode = SyncMode::kAsync};
Consistency Bounded(uint32_t staleness) {
  return {.mode = SyncMode::kBounded, .staleness = staleness};
}
Consistency Backups(uint32_t backup_workers) {
  return {.backup_workers = backup_workers};
}

constexpr Consistency kGated{.gated = true};

TEST(SimConsistencyTest, AsyncAppliesEveryPushOnceOnABadNetwork) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Fleet fleet({.seed = seed, .consistency = kAsync, .faults = 0.1});

    ASSERT_EQ(fleet.Finish(), "");

    EXPECT_EQ(fleet.CheckSums(), "");
  }
}

TEST(SimConsistencyTest, AsyncLosesNothingWithAServer) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Fleet fleet({.seed = seed,
                 .consistency = kAsync,
                 .servers = 3,
                 .replication = 1,
                 .faults = seed % 2 == 0 ? 0.05 : 0});
    for (uint64_t kill = 1; kill <= 4; ++kill) {
      ASSERT_EQ(fleet.RunUntil([&] {
        return fleet.steps_of(1) >= kill * 20 && fleet.job().Status().shards_moving == 0;
      }),
                "");
      fleet.job().KillServer(static_cast<uint32_t>(fleet.Draw(3)));
    }

    ASSERT_EQ(fleet.Finish(), "");

    EXPECT_EQ(fleet.CheckSums(), "");
  }
}

TEST(SimConsistencyTest, AsyncKeepsTheUpdatesOfReplacedWorkersApart) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Fleet fleet({.seed = seed, .consistency = kAsync, .faults = 0.05});
    for (uint64_t death = 1; death <= 3; ++death) {
      ASSERT_EQ(fleet.RunUntil([&] { return fleet.steps_of(2) >= death * 20; }), "");
      fleet.Replace(static_cast<uint32_t>(fleet.Draw(2)));
    }

    ASSERT_EQ(fleet.Finish(), "");

    EXPECT_EQ(fleet.CheckSums(), "");
  }
}

TEST(SimConsistencyTest, AsyncDoesNotWaitForASlowWorker) {
  Fleet fleet({.consistency = kAsync, .steps = 200});
  fleet.Pause(0);

  const std::string problem =
      fleet.RunUntil([&] { return fleet.steps_of(1) == 200 && fleet.steps_of(2) == 200; });

  EXPECT_EQ(problem, "");
  EXPECT_EQ(fleet.steps_of(0), 0);
  EXPECT_THAT(fleet.job().ServerMetricsText(0), testing::HasSubstr("pushpull_staleness_steps"));
}

TEST(SimConsistencyTest, ALateGradientCountsAsMuchLessAsItIsLate) {
  SimJob job({.settings = {.job = "sim", .workers = 2, .servers = 1, .scale_by_staleness = true},
              .consistency = kAsync});
  TensorSpec spec{.name = "w", .dims = {1}, .reduction = Reduction::kSum};
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.optimizer.learning_rate = 1;
  std::vector<std::vector<float>> values(2, std::vector<float>(1, 0));
  std::vector<std::shared_ptr<PendingOperation>> registrations;
  for (uint32_t w = 0; w < 2; ++w) {
    job.StartWorker(w).Join();
    const std::vector<TensorRegistration> tensors = {{.spec = spec, .value = values[w]}};
    registrations.push_back(job.worker(w).Register(tensors));
  }
  ASSERT_TRUE(job.WaitAll(registrations).ok());
  const std::vector<float> gradient = {6};
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(job.Wait(*job.worker(1).PushPull("w", gradient, values[1], {})).ok());

  // Computed with version 0, applied to version 3.
  ASSERT_TRUE(job.Wait(*job.worker(0).PushPull("w", gradient, values[0], {})).ok());

  EXPECT_EQ(values[0][0], -(6 + 6 + 6 + 6.0F / 3));
}

// The specification of Bounded: over 100,000 reads, or a part of them under a sanitizer.
TEST(SimConsistencyTest, BoundedReadsMissNothingThatTheyMustSee) {
  constexpr uint64_t kPart = kSeedStride == 1 ? 1 : 5;
  uint64_t reads = 0;
  for (const uint32_t staleness : {0U, 1U, 3U, 8U}) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      SCOPED_TRACE(absl::StrCat("staleness ", staleness, " seed ", seed));
      Fleet fleet({.seed = seed,
                   .consistency = Bounded(staleness),
                   .servers = 2,
                   .replication = 1,
                   .faults = seed == 1 ? 0.02 : 0,
                   .steps = 850 / kPart,
                   .slowness = 3});
      fleet.ExpectBound(staleness);
      for (uint64_t kill = 1; kill <= 3; ++kill) {
        ASSERT_EQ(fleet.RunUntil([&] {
          return fleet.steps_of(1) >= kill * 200 / kPart && fleet.job().Status().shards_moving == 0;
        }),
                  "");
        fleet.job().KillServer(static_cast<uint32_t>(fleet.Draw(2)));
      }

      ASSERT_EQ(fleet.Finish(), "");

      EXPECT_EQ(fleet.CheckSums(), "");
      reads += fleet.reads();
    }
  }
  EXPECT_GE(reads, 100'000U / kPart);
}

TEST(SimConsistencyTest, BoundedHoldsAFastWorkerUntilTheSlowestFollows) {
  Fleet fleet({.consistency = Bounded(3), .steps = 50});
  ASSERT_EQ(fleet.RunUntil([&] { return fleet.steps_of(0) == 10; }), "");
  fleet.Pause(0);
  const SteadyTime later = fleet.job().scheduler().Now() + std::chrono::seconds(10);
  ASSERT_EQ(fleet.RunUntil([&] { return fleet.job().scheduler().Now() >= later; }), "");
  // Up to eleven of it may be there: it may have pushed once more when it was stopped.
  for (uint32_t w = 1; w < kWorkers; ++w) {
    EXPECT_GE(fleet.steps_of(w), 13U);
    EXPECT_LE(fleet.steps_of(w), 14U);
  }

  fleet.StopPausing(0);

  EXPECT_EQ(fleet.Finish(), "");
}

TEST(SimConsistencyTest, BoundedDoesNotWaitForTheDead) {
  Fleet fleet({.consistency = Bounded(1), .steps = 60});
  ASSERT_EQ(fleet.RunUntil([&] { return fleet.steps_of(1) == 10; }), "");
  fleet.Pause(0);
  fleet.Replace(0);

  ASSERT_EQ(fleet.RunUntil([&] { return fleet.steps_of(1) >= 12; }), "");
  fleet.StopPausing(0);

  EXPECT_EQ(fleet.Finish(), "");
  EXPECT_EQ(fleet.CheckSums(), "");
}

ModeChange ChangeTo(const Consistency& wanted) {
  return {.mode = wanted.mode,
          .staleness = wanted.staleness,
          .backup_workers = wanted.backup_workers,
          .gated = wanted.gated};
}

// Runs the job into `wanted`, which must be in force within a simulated minute.
std::string Change(Fleet& fleet, const Consistency& wanted) {
  const absl::Status asked = fleet.job().SetMode(ChangeTo(wanted));
  if (!asked.ok()) return asked.ToString();
  const SteadyTime late = fleet.job().scheduler().Now() + std::chrono::minutes(1);
  std::string problem = fleet.RunUntil([&] {
    return !fleet.job().Status().is_mode_changing || fleet.job().scheduler().Now() >= late;
  });
  if (!problem.empty()) return problem;
  const JobStatus status = fleet.job().Status();
  const Consistency& now = status.consistency;
  if (now.mode == wanted.mode && now.staleness == wanted.staleness &&
      now.backup_workers == wanted.backup_workers && now.gated == wanted.gated) {
    return "";
  }
  return absl::StrCat("still in ", Describe(now), ": ", status.mode_problem);
}

TEST(SimConsistencyTest, NothingIsLostOrCountedTwiceAcrossChangesOfMode) {
  const std::vector<Consistency> modes = {kAsync,
                                          kGated,
                                          Bounded(2),
                                          {},
                                          kGated,
                                          Backups(1),
                                          kGated,
                                          Bounded(0),
                                          {},
                                          Backups(2),
                                          Backups(1),
                                          kAsync};
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Fleet fleet({.seed = seed,
                 .faults = seed % 3 == 0 ? 0.05 : 0,
                 .steps = 200,
                 .slowness = seed % 2 == 0 ? 5.0 : 1.0});
    for (size_t i = 0; i < modes.size(); ++i) {
      ASSERT_EQ(fleet.RunUntil([&] { return fleet.steps_of(0) >= 10 * (i + 1); }), "") << i;
      ASSERT_EQ(Change(fleet, modes[i]), "") << i;
    }

    ASSERT_EQ(fleet.Finish(), "");

    EXPECT_EQ(fleet.CheckSums(), "");
  }
}

int ResendsOf(const SimJob& job, uint32_t worker) {
  const std::string metrics = job.WorkerMetricsText(worker);
  constexpr char kName[] = "\npushpull_resends_total ";
  return std::stoi(metrics.substr(metrics.find(kName) + sizeof(kName) - 1));
}

// A worker that learns of a mode before a server does is refused until the server has learned of it
// too. Its pushes, and the refusals, each arrive twice here: if each refusal repeated the push,
// there would be four times as many after every 20 ms.
TEST(SimConsistencyTest, RefusalsThatArriveTwiceDoNotMultiply) {
  Fleet fleet({.steps = 60});
  ASSERT_EQ(fleet.RunUntil([&] { return fleet.steps_of(0) >= 10; }), "");
  InprocOptions network = fleet.job().network().options();
  network.faults.duplication = 1;
  fleet.job().network().SetOptions(network);
  fleet.job().control().SetDelay([&] { return std::chrono::milliseconds(fleet.Draw(100)); });

  for (const Consistency& mode : {kAsync, Bounded(1), Consistency{}, kAsync})
    ASSERT_EQ(Change(fleet, mode), "");
  ASSERT_EQ(fleet.Finish(), "");

  int resends = 0;
  for (uint32_t w = 0; w < kWorkers; ++w) resends += ResendsOf(fleet.job(), w);
  EXPECT_GT(resends, 0);
  EXPECT_LT(resends, 500);
  EXPECT_EQ(fleet.CheckSums(), "");
}

TEST(SimConsistencyTest, BackupWorkersMakeUpForASlowOne) {
  Fleet fleet({.consistency = Backups(1), .replication = 1, .steps = 200});
  fleet.Pause(0);
  ASSERT_EQ(fleet.RunUntil([&] { return fleet.steps_of(1) == 100 && fleet.steps_of(2) >= 50; }),
            "");
  const uint64_t steps_of_slow = fleet.steps_of(0);

  fleet.StopPausing(0);
  ASSERT_EQ(fleet.RunUntil([&] { return fleet.steps_of(0) >= 20; }), "");

  EXPECT_LE(steps_of_slow, 1U);
  // What it had missed it has got, and its own steps count again.
  EXPECT_GE(fleet.Seen(0, 0, 1), 90U);
  EXPECT_GE(fleet.Seen(1, 0, 0), 1U);
  ASSERT_EQ(Change(fleet, kAsync), "");
  EXPECT_EQ(fleet.Finish(), "");
  EXPECT_EQ(fleet.CheckSums(), "");
}

class ModeSchedule {
 public:
  explicit ModeSchedule(uint64_t seed)
      : random_(seed),
        replication_(Draw(3)),
        servers_(replication_ + 1 + Draw(2)),
        fleet_({.seed = seed,
                .consistency = DrawMode(),
                .servers = servers_,
                .replication = replication_,
                .faults = Draw(3) == 0 ? 0.04 : 0,
                .steps = 30 + Draw(60),
                .slowness = 1.0 + Draw(5)}) {
    fleet_.job().control().SetDelay([this] { return std::chrono::microseconds(Draw(1500)); });
  }

  // Empty: the job has kept every promise.
  std::string Run() {
    fleet_.KeepGoing(true);
    for (uint32_t faults = 2 + Draw(12); faults > 0; --faults) {
      const SteadyTime until =
          fleet_.job().scheduler().Now() + std::chrono::microseconds(Draw(25'000));
      std::string problem =
          fleet_.RunUntil([&] { return fleet_.job().scheduler().Now() >= until; });
      if (!problem.empty()) return problem;
      if (fleet_.job().Status().phase == JobPhase::kRunning) InjectFault();
    }
    std::string problem = fleet_.RunUntil([&] {
      const JobStatus status = fleet_.job().Status();
      return status.phase == JobPhase::kRunning && !status.is_mode_changing;
    });
    if (problem.empty()) problem = Change(fleet_, kAsync);
    // Now some may push no more.
    fleet_.KeepGoing(false);
    if (problem.empty()) problem = fleet_.Finish();
    return problem.empty() ? fleet_.CheckSums() : problem;
  }

 private:
  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  Consistency DrawMode() {
    const auto mode = static_cast<SyncMode>(1 + Draw(3));
    const uint32_t backup_workers = mode == SyncMode::kSync ? Draw(kWorkers) : 0;
    const bool may_be_gated = mode == SyncMode::kSync && backup_workers == 0;
    return {.mode = mode,
            .staleness = mode == SyncMode::kBounded ? Draw(4) : 0,
            .backup_workers = backup_workers,
            .gated = may_be_gated && Draw(2) == 0};
  }

  void InjectFault() {
    switch (Draw(5)) {
      case 0:
      case 1: {
        // Refused while another change is under way.
        static_cast<void>(fleet_.job().SetMode(ChangeTo(DrawMode())));
        return;
      }
      case 2:
        return KillServer();
      case 3:
        return fleet_.ReplaceIfAllAreThere(Draw(kWorkers));
      default: {
        const std::vector<std::string> names = fleet_.job().NodeNames();
        const std::string& a = names[Draw(static_cast<uint32_t>(names.size()))];
        const std::string& b = names[Draw(static_cast<uint32_t>(names.size()))];
        if (a != b) fleet_.job().network().Break(a, b);
      }
    }
  }

  void KillServer() {
    if (replication_ == 0 || !fleet_.IsWhole()) return;
    const uint32_t victim = Draw(servers_);
    if (!fleet_.job().has_server(victim)) return;
    if (Draw(3) == 0) {
      fleet_.job().SuspectServer(victim);
    } else {
      fleet_.job().KillServer(victim);
    }
  }

  std::mt19937_64 random_;
  const uint32_t replication_;
  const uint32_t servers_;
  Fleet fleet_;
};

TEST(SimConsistencyTest, EveryPromiseIsKeptUnderAnyScheduleOfModes) {
  const Seeds seeds = SeedsToRun(500);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    ModeSchedule schedule(seed);

    const std::string problem = schedule.Run();

    EXPECT_EQ(problem, "") << "replay: PUSHPULL_SIM_SEEDS=" << seed << ":1";
  }
}

}  // namespace
}  // namespace pushpull
