// SPDX-License-Identifier: Apache-2.0
//
// Data sets that workers share, in whole simulated jobs of every mode with servers, with faults
// from a seed: workers that die and are replaced, join and are released, primaries that die, frames
// that are lost, repeated and reordered.
//
// The gradient of a worker is 1 for each of its samples, and their sum is subtracted: in the end
// the values say how often each sample of each epoch has counted. That is once; where workers die,
// without the gate, at most one batch for each of them counts twice or not at all. And a job makes
// no more steps than its samples need.
//
// PUSHPULL_SIM_SEEDS=FIRST:COUNT runs other seeds, PUSHPULL_SIM_LOG=1 prints what the job says.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/seeds.h"
#include "tests/fakes/sim_executor.h"
#include "tests/fakes/sim_job.h"
#include "tests/fakes/sim_trainer.h"

namespace pushpull {
namespace {

// From Async to Sync in kBecomesSync.
enum class Counting { kSync, kGated, kBackup, kAsync, kBounded, kBecomesSync };

uint64_t CeilDiv(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

Consistency ConsistencyOf(Counting counting, uint32_t backup_workers) {
  switch (counting) {
    case Counting::kSync:
      return {};
    case Counting::kGated:
      return {.gated = true};
    case Counting::kBackup:
      return {.backup_workers = backup_workers};
    case Counting::kAsync:
    case Counting::kBecomesSync:
      return {.mode = SyncMode::kAsync};
    case Counting::kBounded:
      return {.mode = SyncMode::kBounded, .staleness = backup_workers};
  }
  return {};
}

class SampleSchedule {
 public:
  SampleSchedule(uint64_t seed, Counting counting)
      : random_(seed),
        counting_(counting),
        workers_((counting == Counting::kBackup ? 2 : 1) + Draw(4)),
        spare_(1 + Draw(std::max(2U, workers_) - 1)),
        replication_(Draw(2)),
        servers_(replication_ + 1 + Draw(2)),
        faults_(Draw(3) == 0 ? 0 : Draw(6)),
        kills_workers_(Draw(2) == 0),
        source_{.num_samples = 1 + Draw(150),
                .epochs = 1 + Draw(3),
                .batch = 1 + Draw(12),
                .is_global_batch = Draw(2) == 0},
        job_(MakeOptions(seed)),
        executor_(job_.scheduler()) {
    for (uint32_t w = 0; w < workers_; ++w) StartWorker(w);
    wanted_workers_ = most_workers_ = workers_;
  }

  // Empty: the job has kept every promise.
  std::string Run() {
    for (uint32_t fault = 0; fault < faults_; ++fault) {
      const SteadyTime until = job_.scheduler().Now() + std::chrono::milliseconds(Draw(120));
      RunUntil([&] { return job_.scheduler().Now() >= until; });
      InjectFault();
    }
    InprocOptions network = job_.network().options();
    network.faults.loss = 0;
    job_.network().SetOptions(network);
    if (!RunUntil([&] { return IsDone(); }) && problem_.empty()) problem_ = DescribeStuck();
    if (problem_.empty()) CheckSamples();
    if (problem_.empty()) CheckSteps();
    return problem_;
  }

 private:
  enum class Phase { kJoining, kReady, kComputing, kPushing, kReading, kLeaving, kGone };
  struct Worker {
    Phase phase = Phase::kJoining;
    std::vector<std::shared_ptr<PendingOperation>> pending;
    StepSamples share;
    std::vector<float> counts;
    std::vector<float> model;
    std::vector<float> gradient;
  };

  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  bool has_common_steps() const {
    return counting_ == Counting::kSync || counting_ == Counting::kGated ||
           counting_ == Counting::kBackup;
  }

  SimJobOptions MakeOptions(uint64_t seed) {
    SimJobOptions options{.settings = {.job = "sim",
                                       .workers = workers_,
                                       .servers = servers_,
                                       .replication = replication_},
                          .consistency = ConsistencyOf(counting_, spare_),
                          .seed = seed};
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs
    if (std::getenv("PUSHPULL_SIM_LOG") != nullptr) options.log_level = LogLevel::kDebug;
    const Duration delay_max = std::chrono::microseconds(Draw(3000));
    SetNetwork(options, delay_max, Draw(3) == 0);
    return options;
  }

  void StartWorker(uint32_t index) {
    Worker& worker = states_[index] = Worker{};
    WorkerNode& node = job_.StartWorker(index);
    node.Join();
    const uint64_t size = source_.num_samples * source_.epochs;
    worker.counts.assign(size, 0);
    worker.gradient.assign(size, 0);
    worker.model.assign(1, 0);
    const absl::Status used = node.operations().UseSamples(source_);
    if (!used.ok()) return Report("worker-", index, ": ", used.ToString());
    const TensorSpec counts =
        SimTensor("counts", static_cast<int64_t>(size), OptimizerKind::kSgd, Reduction::kSum);
    const TensorSpec model = SimTensor("model", 1, OptimizerKind::kSgd, Reduction::kMean);
    const std::vector<TensorRegistration> registrations = {{.spec = counts, .value = worker.counts},
                                                           {.spec = model, .value = worker.model}};
    worker.pending = {node.Register(registrations)};
  }

  // ---- driving, between any two events ----

  template <typename Condition>
  bool RunUntil(Condition condition) {
    return job_.scheduler().RunUntil(
        [&] {
          KeepServers(job_, servers_);
          for (auto& [index, worker] : states_) Drive(index, worker);
          return !problem_.empty() || condition();
        },
        std::chrono::minutes(10));
  }

  bool IsDone() const {
    return std::all_of(states_.begin(), states_.end(), [](const auto& entry) {
      const Worker& worker = entry.second;
      return worker.phase == Phase::kGone ||
             (worker.phase == Phase::kLeaving && worker.pending.front()->is_done());
    });
  }

  void Drive(uint32_t index, Worker& worker) {
    if (worker.phase == Phase::kComputing || worker.phase >= Phase::kLeaving) return;
    for (const auto& one : worker.pending)
      if (!one->is_done()) return;
    for (const auto& one : worker.pending) {
      const absl::Status status = one->Wait(Deadline::After(Duration::zero()));
      // One that was to replace another, which is not wanted any more.
      const bool is_surplus = worker.phase == Phase::kJoining && index >= wanted_workers_;
      if (!status.ok() && is_surplus) {
        worker.phase = Phase::kGone;
        return;
      }
      if (!status.ok()) return Report("worker-", index, ": ", status.ToString());
    }
    worker.pending.clear();
    if (worker.phase == Phase::kPushing && worker.share.count > 0) ++batches_[worker.share.epoch];
    if (worker.phase == Phase::kReading) return Leave(index, worker);
    Take(index, worker);
  }

  void Take(uint32_t index, Worker& worker) {
    absl::StatusOr<StepSamples> share = job_.worker(index).operations().Samples(0);
    if (!share.ok()) return Report("worker-", index, ": ", share.status().ToString());
    worker.share = *std::move(share);
    if (worker.share.is_over) return Read(index, worker);
    if (has_common_steps()) {
      steps_[worker.share.epoch].insert(worker.share.step.value());
      if (worker.share.total == 0) ++empty_steps_;
    }
    worker.phase = Phase::kComputing;
    const bool has_samples = worker.share.count > 0;
    const auto duration = std::chrono::microseconds(has_samples ? 200 + Draw(8000) : 1);
    const uint64_t process = ++num_computed_;
    computing_[index] = process;
    executor_.RunAfter(duration, [this, index, process] {
      if (computing_[index] == process) Push(index, states_.at(index));
    });
  }

  void Push(uint32_t index, Worker& worker) {
    WorkerNode& node = job_.worker(index);
    worker.phase = Phase::kPushing;
    most_samples_ = std::max(most_samples_, worker.share.count);
    std::fill(worker.gradient.begin(), worker.gradient.end(), 0.0F);
    for (const SampleRange& range : worker.share.ranges) {
      const auto first =
          worker.gradient.begin() +
          static_cast<int64_t>(worker.share.epoch * source_.num_samples + range.first);
      std::fill_n(first, range.count, 1.0F);
    }
    const bool has_gradient = worker.share.count > 0;
    const PushOptions options{.samples = static_cast<double>(worker.share.count),
                              .has_gradient = has_gradient};
    const auto keep = [&](absl::StatusOr<std::shared_ptr<PendingOperation>> operation) {
      if (!operation.ok()) return Report("worker-", index, ": ", operation.status().ToString());
      worker.pending.push_back(*std::move(operation));
    };
    if (worker.share.has_step) {
      const std::vector<float> ones(1, 1);
      keep(node.PushPull("counts", worker.gradient, worker.counts, options));
      keep(node.PushPull("model", ones_, worker.model, options));
    }
    keep(node.CommitSamples());
  }

  // The last one that does has everything.
  void Read(uint32_t index, Worker& worker) {
    auto read = job_.worker(index).Pull("counts", worker.counts, Step{0});
    if (!read.ok()) return Report("worker-", index, ": ", read.status().ToString());
    worker.pending = {*std::move(read)};
    worker.phase = Phase::kReading;
  }

  void Leave(uint32_t index, Worker& worker) {
    newest_.resize(worker.counts.size());
    for (size_t i = 0; i < newest_.size(); ++i) newest_[i] = std::min(newest_[i], worker.counts[i]);
    worker.phase = Phase::kLeaving;
    worker.pending = {job_.worker(index).Leave()};
  }

  // ---- faults ----

  void InjectFault() {
    if (job_.Status().phase != JobPhase::kRunning) return;
    if (counting_ == Counting::kBecomesSync && job_.SetMode({.mode = SyncMode::kSync}).ok()) return;
    switch (Draw(4)) {
      case 0:
        if (replication_ > 0 && IsWhole(job_, servers_)) return LosePrimary();
        return;
      case 1:
        return Resize(wanted_workers_ + 1);
      case 2:
        if (wanted_workers_ > 1) Resize(wanted_workers_ - 1);
        return;
      default:
        if (kills_workers_) KillWorker(Draw(wanted_workers_));
    }
  }

  void LosePrimary() {
    ++server_losses_;
    job_.KillServer(Draw(servers_));
  }

  void KillWorker(uint32_t index) {
    if (states_.at(index).phase >= Phase::kReading) return;
    ++deaths_;
    job_.KillWorker(index);
    computing_.erase(index);
    StartWorker(index);
  }

  // One that has been released may be gone, and its index is taken again by another process.
  void Resize(uint32_t workers) {
    const bool is_any_done = std::any_of(states_.begin(), states_.end(), [](const auto& entry) {
      return entry.second.phase >= Phase::kReading;
    });
    if (is_any_done || workers <= spare_ || !job_.ResizeWorkers(workers).ok()) return;
    ++resizes_;
    if (workers > wanted_workers_ && !states_.contains(workers - 1)) StartWorker(workers - 1);
    wanted_workers_ = workers;
    most_workers_ = std::max(most_workers_, workers);
  }

  // ---- the promises ----

  bool IsExact() const {
    return deaths_ == 0 || (counting_ == Counting::kGated && server_losses_ == 0);
  }

  void CheckSamples() {
    uint64_t wrong = 0;
    for (size_t i = 0; i < newest_.size(); ++i) {
      const double times = -newest_[i];
      if (times == 1) continue;
      wrong += static_cast<uint64_t>(std::abs(times - 1));
      if (IsExact()) {
        return Report("sample ",
                      i % source_.num_samples,
                      " of epoch ",
                      i / source_.num_samples,
                      " has counted ",
                      times,
                      " times");
      }
    }
    if (newest_.empty()) Report("nobody has read the values");
    if (wrong > deaths_ * most_samples_) {
      Report(wrong,
             " samples too many or too few after ",
             deaths_,
             " deaths, of batches of up to ",
             most_samples_);
    }
  }

  void CheckSteps() {
    if (counting_ == Counting::kBecomesSync) return;
    if (empty_steps_ > deaths_ * most_workers_)
      return Report(empty_steps_, " times a worker was in a step without samples");
    const bool is_batch_known = source_.is_global_batch ? has_common_steps() : resizes_ == 0;
    for (uint64_t epoch = 0; epoch < source_.epochs; ++epoch) {
      if (!has_common_steps() && !source_.is_global_batch) {
        const uint64_t needed = CeilDiv(source_.num_samples, source_.batch);
        CheckNumber(
            epoch, batches_[epoch], needed - std::min<uint64_t>(needed, deaths_), needed + deaths_);
      } else if (has_common_steps() && is_batch_known && deaths_ == 0) {
        CheckCommonSteps(epoch, steps_[epoch].size());
      }
    }
  }

  void CheckCommonSteps(uint64_t epoch, uint64_t steps) {
    const uint64_t batch = source_.batch * (source_.is_global_batch ? 1 : workers_);
    const uint64_t needed = CeilDiv(source_.num_samples, batch);
    if (counting_ != Counting::kBackup) return CheckNumber(epoch, steps, needed, needed);
    // At least this many samples count in a full step, and the rest is handed out again.
    const uint64_t counted = std::max<uint64_t>(1, batch / workers_ * (workers_ - spare_));
    if (resizes_ == 0)
      CheckNumber(epoch, steps, needed, CeilDiv(source_.num_samples, counted) + 2 * workers_);
  }

  void CheckNumber(uint64_t epoch, uint64_t steps, uint64_t least, uint64_t most) {
    if (steps >= least && steps <= most) return;
    Report("epoch ", epoch, " took ", steps, " steps, expected ", least, " to ", most);
  }

  template <typename... Parts>
  void Report(const Parts&... parts) {
    if (problem_.empty()) problem_ = absl::StrCat(parts...);
  }

  std::string DescribeStuck() {
    std::string text = absl::StrCat("stuck: ", job_.Status().failure);
    for (const auto& [index, worker] : states_) {
      absl::StrAppend(&text,
                      "; worker-",
                      index,
                      " in phase ",
                      static_cast<int>(worker.phase),
                      " in step ",
                      worker.share.step.value(),
                      " of epoch ",
                      worker.share.epoch,
                      " with ",
                      worker.share.count,
                      " samples");
    }
    return text;
  }

  std::mt19937_64 random_;
  const Counting counting_;
  const uint32_t workers_;  // at the start
  const uint32_t spare_;    // backup workers; staleness
  const uint32_t replication_;
  const uint32_t servers_;
  const uint32_t faults_;
  const bool kills_workers_;
  const SampleSource source_;
  const std::vector<float> ones_{1};
  SimJob job_;
  SimExecutor executor_;
  std::map<uint32_t, Worker> states_;
  std::map<uint32_t, uint64_t> computing_;  // the latest computation of each worker
  uint64_t num_computed_ = 0;
  uint32_t wanted_workers_ = 0;
  uint32_t most_workers_ = 0;
  uint64_t most_samples_ = 0;  // of a batch
  uint64_t deaths_ = 0;
  uint64_t server_losses_ = 0;
  uint64_t resizes_ = 0;
  uint64_t empty_steps_ = 0;
  std::vector<float> newest_;
  std::map<uint64_t, std::set<uint64_t>> steps_;  // by epoch
  std::map<uint64_t, uint64_t> batches_;          // likewise, without common steps
  std::string problem_;
};

// Workers of a job without common steps whose data set is one batch: the second one waits for what
// the first one has.
class OneBatch {
 public:
  OneBatch()
      : job_({.settings = {.job = "sim", .workers = 2, .servers = 1},
              .consistency = {.mode = SyncMode::kAsync}}) {
    std::vector<std::shared_ptr<PendingOperation>> registrations;
    for (uint32_t w = 0; w < 2; ++w) {
      WorkerNode& node = job_.StartWorker(w);
      node.Join();
      EXPECT_TRUE(node.operations().UseSamples({.num_samples = 8, .epochs = 2, .batch = 8}).ok());
      const TensorSpec spec = SimTensor("w", 1, OptimizerKind::kSgd, Reduction::kMean);
      const std::vector<TensorRegistration> tensors = {{.spec = spec, .value = values_[w]}};
      registrations.push_back(node.Register(tensors));
    }
    EXPECT_TRUE(job_.WaitAll(registrations).ok());
    wait_ = Commit(1);
    job_.scheduler().RunFor(std::chrono::seconds(1));
  }

  SimJob& job() { return job_; }
  const std::shared_ptr<PendingOperation>& wait() const { return wait_; }
  std::shared_ptr<PendingOperation> Commit(uint32_t worker) {
    return *job_.worker(worker).CommitSamples();
  }
  std::shared_ptr<PendingOperation> Push(uint32_t worker) {
    const auto samples = static_cast<double>(Samples(worker).count);
    return *job_.worker(worker).PushPull("w", gradient_, values_[worker], {.samples = samples});
  }
  StepSamples Samples(uint32_t worker) {
    const auto samples = job_.worker(worker).operations().Samples(0);
    EXPECT_TRUE(samples.ok()) << samples.status();
    return samples.ok() ? *samples : StepSamples{};
  }

 private:
  std::vector<float> values_[2] = {{0}, {0}};
  const std::vector<float> gradient_ = {1};
  SimJob job_;
  std::shared_ptr<PendingOperation> wait_;
};

TEST(SimWaitForSamplesTest, LastsUntilSomebodyReturnsThemOrTheEpochIsOver) {
  OneBatch workers;
  EXPECT_FALSE(workers.wait()->is_done());

  workers.job().KillWorker(0);

  ASSERT_TRUE(workers.job().Wait(workers.wait()).ok());
  EXPECT_EQ(workers.Samples(1).epoch, 0U);
  EXPECT_EQ(workers.Samples(1).count, 8U);
}

TEST(SimWaitForSamplesTest, EndsForAWorkerThatIsReleased) {
  OneBatch workers;

  ASSERT_TRUE(workers.job().ResizeWorkers(1).ok());

  ASSERT_TRUE(workers.job().Wait(workers.wait()).ok());
  EXPECT_EQ(workers.Samples(1).count, 0U);
  ASSERT_TRUE(workers.job().Wait(workers.Commit(1)).ok());
  EXPECT_TRUE(workers.Samples(1).is_over);
  ASSERT_TRUE(workers.job().Wait(workers.job().worker(1).Leave()).ok());
  EXPECT_EQ(workers.Samples(0).count, 8U);
}

TEST(SimWaitForSamplesTest, EndsForAChangeOfMode) {
  OneBatch workers;
  ASSERT_TRUE(workers.job().SetMode({.mode = SyncMode::kSync}).ok());
  ASSERT_TRUE(workers.job().Wait(workers.wait()).ok());
  EXPECT_FALSE(workers.Samples(1).has_step);

  ASSERT_TRUE(workers.job().Wait(workers.Commit(1)).ok());  // asks again

  EXPECT_EQ(workers.job().Status().consistency.mode, SyncMode::kSync);
  EXPECT_TRUE(workers.Samples(1).has_step);
  const std::vector<std::shared_ptr<PendingOperation>> step = {
      workers.Push(0), workers.Push(1), workers.Commit(0), workers.Commit(1)};
  ASSERT_TRUE(workers.job().WaitAll(step).ok());
  EXPECT_EQ(workers.Samples(0).epoch, 1U);
  EXPECT_EQ(workers.Samples(0).count, 4U);
  EXPECT_EQ(workers.Samples(1).count, 4U);
}

class SimSamplesTest : public testing::TestWithParam<std::pair<Counting, const char*>> {};

TEST_P(SimSamplesTest, EverySampleCountsAsPromisedAndNoStepIsInVain) {
  const Seeds seeds = SeedsToRun(200);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    const std::string problem = SampleSchedule(seed, GetParam().first).Run();
    ASSERT_EQ(problem, "") << "PUSHPULL_SIM_SEEDS=" << seed << ":1";
  }
}

INSTANTIATE_TEST_SUITE_P(Modes,
                         SimSamplesTest,
                         testing::Values(std::pair{Counting::kSync, "Sync"},
                                         std::pair{Counting::kGated, "Gated"},
                                         std::pair{Counting::kBackup, "Backup"},
                                         std::pair{Counting::kAsync, "Async"},
                                         std::pair{Counting::kBounded, "Bounded"},
                                         std::pair{Counting::kBecomesSync, "BecomesSync"}),
                         [](const auto& mode) { return mode.param.second; });

}  // namespace
}  // namespace pushpull
