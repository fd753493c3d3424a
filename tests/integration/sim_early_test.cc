// SPDX-License-Identifier: Apache-2.0
//
// Schedules of faults that begin before the first registration: servers, also those beside workers,
// are killed, told to end, suspected, cut off, added and removed; workers are killed before all are
// there; coordinators die or are stopped for a while; connections break; often two at once; with
// and without a checkpoint to start from, with replication 0, 1 and 2.
//
// Where no more servers are lost than there are copies, the values of all workers at the end must
// be those of the undisturbed job, bit for bit. Where more are, the job may also fail and say why.
// It never hangs.
//
// A schedule is drawn before it runs. One that fails is run again with fewer of its faults: the
// shortest beginning that fails is printed. PUSHPULL_SIM_SEEDS=FIRST:COUNT runs other seeds,
// PUSHPULL_SIM_LOG=1 prints what the job says.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

#include "runtime/base/colocated_server.h"
#include "tests/fakes/memory_file_system.h"
#include "tests/fakes/seeds.h"
#include "tests/fakes/sim_executor.h"
#include "tests/fakes/sim_job.h"

namespace pushpull {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Values = std::vector<std::vector<float>>;

constexpr char kFolder[] = "/models";
constexpr uint64_t kSteps = 3;
constexpr uint32_t kServersMax = 5;
constexpr uint32_t kWorkersMax = 3;
// Members wait so long for a coordinator, and the launcher between two looks.
constexpr Duration kRetry = milliseconds(50);
// Until the coordinator has surely heard of what happened to a server.
constexpr Duration kNoticed = milliseconds(50);
// Everything has a shorter deadline than this.
constexpr Duration kEnd = std::chrono::minutes(10);

enum class Kind {
  kKillServer,
  kLeaveServer,
  kSuspectServer,
  kCutOffServer,
  kKillColocated,
  kResize,
  kKillCoordinator,
  kIsolateCoordinator,
  kStopCoordinator,
  kBreakConnection,
  kKillWorker,
};
constexpr std::array<const char*, 11> kKindNames = {"kill a server",
                                                    "tell a server to end",
                                                    "suspect a server",
                                                    "cut a server off",
                                                    "kill a server beside a worker",
                                                    "resize",
                                                    "kill the coordinator",
                                                    "isolate the coordinator",
                                                    "stop the coordinator",
                                                    "break a connection",
                                                    "kill a worker"};

struct Fault {
  Kind kind = Kind::kKillServer;
  Duration at{0};
  uint32_t choice = 0;  // which of those that are there
  uint32_t other = 0;   // a second one
  Duration lasts{0};    // until what is gone comes back
};

struct Plan {
  uint64_t seed = 0;
  uint32_t workers = 1;
  uint32_t replication = 0;
  uint32_t servers = 1;
  bool has_checkpoint = false;
  bool has_colocated = false;
  bool has_large_tensor = false;  // of two chunks
  bool may_lose = false;          // more servers than there are copies
  bool repairs_losses = false;
  bool is_lossy = false;  // the network
  Duration delay_max{0};  // of frames and of control messages
  std::array<Duration, kWorkersMax> worker_starts = {};
  std::array<Duration, kWorkersMax> colocated_starts = {};
  std::vector<Fault> faults;  // in their order
};

class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}
  uint32_t Below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
  bool OneIn(uint32_t count) { return Below(count) == 0; }
  Duration Time(uint32_t microseconds_max) { return microseconds(Below(microseconds_max)); }

 private:
  std::mt19937_64 random_;
};

Fault DrawFault(Draws& draws) {
  const auto kind = static_cast<Kind>(draws.Below(kKindNames.size()));
  // What is gone comes back at once, soon, or when others have given it up.
  uint32_t longest = draws.OneIn(4) ? 25'000'000U : 100'000U;
  if (draws.OneIn(3)) longest = 1;
  return {.kind = kind,
          .choice = draws.Below(1 << 16),
          .other = draws.Below(1 << 16),
          .lasts = draws.Time(longest)};
}

Plan DrawPlan(uint64_t seed) {
  Draws draws(seed);
  Plan plan{.seed = seed, .workers = 1 + draws.Below(kWorkersMax), .replication = draws.Below(3)};
  plan.servers = plan.replication + 1 + draws.Below(3);
  plan.has_checkpoint = draws.OneIn(2);
  plan.has_colocated = draws.OneIn(3);
  plan.has_large_tensor = draws.OneIn(32);
  plan.may_lose = draws.OneIn(4);
  plan.repairs_losses = draws.OneIn(2);
  plan.is_lossy = draws.OneIn(4);
  plan.delay_max = draws.Time(3000);
  const uint32_t start_max = draws.OneIn(2) ? 5'000U : 60'000U;
  for (Duration& start : plan.worker_starts) start = draws.Time(start_max);
  for (Duration& start : plan.colocated_starts) start = draws.Time(start_max);
  const uint32_t longest = draws.OneIn(3) ? 100'000U : 10'000U;
  for (uint32_t count = 1 + draws.Below(5); count > 0; --count) {
    Fault fault = DrawFault(draws);
    const bool is_at_once = !plan.faults.empty() && draws.OneIn(3);
    fault.at = is_at_once ? plan.faults.back().at : draws.Time(longest);
    plan.faults.push_back(fault);
  }
  std::ranges::stable_sort(plan.faults, {}, &Fault::at);
  return plan;
}

std::string Describe(const Plan& plan, size_t num_faults) {
  std::string text = absl::StrCat("seed ",
                                  plan.seed,
                                  ": ",
                                  plan.workers,
                                  " workers, ",
                                  plan.servers,
                                  " servers, replication ",
                                  plan.replication,
                                  plan.has_checkpoint ? ", from a checkpoint" : "",
                                  plan.has_colocated ? ", servers beside workers" : "",
                                  plan.is_lossy ? ", lossy network" : "",
                                  plan.may_lose ? ", more lost than copies" : "",
                                  plan.repairs_losses ? ", losses are repaired" : "");
  for (size_t i = 0; i < num_faults; ++i) {
    const Fault& fault = plan.faults[i];
    absl::StrAppend(&text,
                    "; at ",
                    ToSeconds(fault.at) * 1000,
                    " ms ",
                    kKindNames[static_cast<size_t>(fault.kind)],
                    " (",
                    fault.choice,
                    ", for ",
                    ToSeconds(fault.lasts) * 1000,
                    " ms)");
  }
  return text;
}

std::vector<int64_t> SizesOf(const Plan& plan) {
  return {3, plan.has_large_tensor ? 70'000 : 700, 40};
}

class Early {
 public:
  // The job has the first `num_faults` faults of the plan. `files`, which may be null, has the
  // checkpoint it starts from.
  Early(const Plan& plan, size_t num_faults, MemoryFileSystem* files)
      : plan_(plan),
        wanted_(plan.servers),
        may_die_(plan.replication),
        draws_(plan.seed + 1),
        job_(OptionsOf(plan, files)),
        script_(job_.scheduler()),
        started_(job_.scheduler().Now()) {
    job_.control().SetDelay([this] { return Delay(); });
    for (size_t i = 0; i < num_faults; ++i) {
      const Fault& fault = plan_.faults[i];
      if (fault.kind == Kind::kKillWorker)
        last_worker_start_ = std::max(last_worker_start_, fault.at + kRetry);
      After(fault.at, [this, &fault] { Inject(fault); });
    }
    for (uint32_t w = 0; w < plan_.workers; ++w) {
      // The last one comes when no worker is killed any more: no step begins without all.
      const bool is_last = w + 1 == plan_.workers;
      After(std::max(plan_.worker_starts[w], is_last ? last_worker_start_ : Duration::zero()),
            [this, w] { StartWorker(w); });
      if (plan_.has_colocated) After(plan_.colocated_starts[w], [this, w] { StartColocated(w); });
    }
    After(Duration::zero(), [this] { KeepServers(); });
  }

  // Empty: the job has kept its promises.
  std::string Run() {
    const bool has_ended = job_.scheduler().RunUntil(
        [&] {
          for (auto& [index, worker] : workers_) Drive(index, worker);
          // The status is large: now and then is enough.
          return !problem_.empty() || has_given_up_ || IsDone() ||
                 (++looks_ % 64 == 0 && HasFailed());
        },
        kEnd);
    if (!problem_.empty()) return problem_;
    if (has_given_up_) return "";
    if (HasFailed()) return MayFail() ? "" : absl::StrCat("failed: ", job_.Status().failure);
    if (!has_ended) return DescribeStuck();
    return "";
  }

  bool HasFailed() { return job_.has_coordinator() && job_.Status().phase == JobPhase::kFailed; }
  // The checkpoint of the last step, which is saved when all have left.
  bool HasSaved() {
    return job_.scheduler().RunUntil([&] { return job_.Status().checkpoint.step == Step{kSteps}; },
                                     std::chrono::minutes(1));
  }
  // Workers were told that the job has failed, maybe by a coordinator that is replaced by now.
  bool has_given_up() const { return has_given_up_; }
  const std::set<Kind>& kinds_done() const { return kinds_done_; }
  const Values& values(uint32_t worker) const { return workers_.at(worker).values; }
  // A new coordinator does not know of the losses before it.
  bool MayDiffer() {
    return has_lost_ && (has_lost_coordinator_ || !job_.Status().state_losses.empty());
  }

 private:
  struct Worker {
    std::shared_ptr<PendingOperation> registration;
    bool is_registered = false;
    uint64_t step = 0;
    uint64_t end = 0;
    std::vector<std::shared_ptr<PendingOperation>> pending;
    std::shared_ptr<PendingOperation> leave;
    Values values;
    Values gradients;
  };

  static SimJobOptions OptionsOf(const Plan& plan, MemoryFileSystem* files) {
    SimJobOptions options{.settings = {.job = "sim",
                                       .workers = plan.workers,
                                       .servers = plan.servers,
                                       .replication = plan.replication,
                                       .deterministic = true},
                          .seed = plan.seed,
                          .lanes = 1,
                          .repairs_losses = plan.repairs_losses,
                          .has_colocated_servers = plan.has_colocated};
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs
    if (std::getenv("PUSHPULL_SIM_LOG") != nullptr) options.log_level = LogLevel::kDebug;
    SetNetwork(options, plan.delay_max, plan.is_lossy);
    if (files != nullptr) {
      options.checkpoint = CheckpointPolicy{.folder = kFolder, .every = std::chrono::hours(100)};
      options.files = files;
    }
    return options;
  }

  Duration Delay() {
    return microseconds(draws_.Below(1 + static_cast<uint32_t>(plan_.delay_max / microseconds(2))));
  }

  void After(Duration time, std::function<void()> what) {
    script_.RunAt(job_.scheduler().Now() + time, std::move(what));
  }

  // ---- what a launcher does ----

  void KeepServers() {
    const uint32_t wanted = WantedServers();
    for (uint32_t i = 0; i < kServersMax; ++i) {
      if (job_.has_server(i) && job_.server_has_ended(i)) job_.KillServer(i);
      const bool is_due = i < wanted && !job_.has_server(i) && !missing_.contains(i);
      if (is_due && (job_.has_coordinator() || is_first_look_)) job_.StartServer(i);
    }
    for (uint32_t w = 0; plan_.has_colocated && w < plan_.workers; ++w) {
      const uint32_t i = ServerBeside(WorkerId{w}).value();
      if (!job_.has_server(i) || !job_.server_has_ended(i)) continue;
      job_.KillServer(i);
      After(kRetry, [this, w] { StartColocated(w); });
    }
    is_first_look_ = false;
    After(milliseconds(5), [this] { KeepServers(); });
  }

  // A new coordinator asks for as many as it has heard of, and knows no change of size better until
  // it has taken the next one.
  uint32_t WantedServers() {
    if (is_size_known_ || !job_.has_coordinator()) return wanted_;
    return std::max(wanted_, job_.Status().desired_servers);
  }

  void StartColocated(uint32_t worker) {
    const uint32_t index = ServerBeside(WorkerId{worker}).value();
    if (job_.has_server(index)) return;
    if (!job_.has_coordinator()) return After(kRetry, [this, worker] { StartColocated(worker); });
    job_.StartServer(index);
  }

  void StartWorker(uint32_t index) {
    if (job_.has_worker(index) || HasFailed()) return;
    if (!job_.has_coordinator()) return After(kRetry, [this, index] { StartWorker(index); });
    has_workers_ = true;
    Worker& worker = workers_[index] = Worker{};
    WorkerNode& node = job_.StartWorker(index);
    node.Join();
    for (const int64_t size : SizesOf(plan_))
      worker.values.emplace_back(static_cast<size_t>(size), 0.5F);
    worker.gradients = worker.values;
    std::vector<TensorRegistration> registrations;
    for (size_t t = 0; t < worker.values.size(); ++t) {
      TensorSpec spec{.name = absl::StrCat("t", t),
                      .dims = {static_cast<int64_t>(worker.values[t].size())}};
      spec.optimizer = {.kind = OptimizerKind::kAdam, .learning_rate = 0.01};
      registrations.push_back({.spec = spec, .value = worker.values[t]});
    }
    worker.registration = node.Register(registrations);
  }

  void Drive(uint32_t index, Worker& worker) {
    if (!job_.has_worker(index) || (worker.leave != nullptr && worker.leave->is_done())) return;
    if (!worker.is_registered) return FinishRegistration(index, worker);
    for (const auto& one : worker.pending)
      if (!one->is_done()) return;
    for (const auto& one : worker.pending) {
      const absl::Status status = one->Wait(Deadline::After(Duration::zero()));
      if (!status.ok()) return Report(index, status);
    }
    if (!worker.pending.empty()) ++worker.step;
    worker.pending.clear();
    if (worker.step < worker.end) return Push(index, worker);
    if (worker.leave == nullptr) worker.leave = job_.worker(index).Leave();
  }

  void FinishRegistration(uint32_t index, Worker& worker) {
    if (!worker.registration->is_done()) return;
    const absl::Status status = worker.registration->Wait(Deadline::After(Duration::zero()));
    if (!status.ok() && HasFailed()) return;
    if (!status.ok() && has_lost_coordinator_) {
      // Who has not been welcomed yet takes it that there is no coordinator; the next process
      // comes.
      job_.KillWorker(index);
      return After(kRetry, [this, index] { StartWorker(index); });
    }
    if (!status.ok()) return Report(index, status);
    worker.is_registered = true;
    worker.step = job_.worker(index).start_step().value();
    worker.end = kSteps * (plan_.has_checkpoint ? 2 : 1);
  }

  void Push(uint32_t index, Worker& worker) {
    for (size_t t = 0; t < worker.values.size(); ++t) {
      const float gradient =
          0.1F * static_cast<float>((worker.step * 7 + index * 3 + t) % 11) - 0.4F;
      std::ranges::fill(worker.gradients[t], gradient);
      auto handle = job_.worker(index).PushPull(
          absl::StrCat("t", t), worker.gradients[t], worker.values[t], {});
      if (!handle.ok()) return Report(index, handle.status());
      worker.pending.push_back(*handle);
    }
  }

  bool IsDone() const {
    return workers_.size() == plan_.workers && std::ranges::all_of(workers_, [](const auto& entry) {
             return entry.second.leave != nullptr && entry.second.leave->is_done();
           });
  }

  // Of a worker's operation: the job's failure comes first where there is one.
  void Report(uint32_t index, const absl::Status& status) {
    has_given_up_ = has_lost_ && plan_.may_lose;
    if (problem_.empty() && !has_given_up_)
      problem_ = absl::StrCat("worker-", index, ": ", status.ToString());
  }

  std::string DescribeStuck() {
    const JobStatus status = job_.Status();
    std::string text = absl::StrCat("stuck in phase ",
                                    static_cast<int>(status.phase),
                                    ", ",
                                    status.shards_moving,
                                    " shards moving, ",
                                    status.servers.size(),
                                    " servers of ",
                                    wanted_);
    for (const auto& [index, worker] : workers_) {
      absl::StrAppend(&text,
                      "; worker-",
                      index,
                      worker.is_registered ? " in step " : " joining ",
                      worker.step,
                      " of ",
                      worker.end);
    }
    return text;
  }

  // ---- faults ----

  void Inject(const Fault& fault) {
    if (HasFailed() || !problem_.empty()) return;
    switch (fault.kind) {
      case Kind::kKillServer:
      case Kind::kLeaveServer:
      case Kind::kSuspectServer:
      case Kind::kCutOffServer:
        return HitServer(fault);
      case Kind::kKillColocated:
        return KillColocated(fault);
      case Kind::kResize:
        return Resize(plan_.replication + 1 + fault.choice % (kServersMax - plan_.replication));
      case Kind::kKillCoordinator:
      case Kind::kIsolateCoordinator:
        return LoseCoordinator(fault);
      case Kind::kStopCoordinator:
        return StopCoordinator(fault);
      case Kind::kBreakConnection:
        return BreakConnection(fault);
      case Kind::kKillWorker:
        return KillWorker(fault);
    }
  }

  // False: one more must not be lost.
  bool MayLoseServer() {
    const JobStatus status = job_.Status();
    // The coordinator hears of a loss later.
    const SteadyTime now = job_.scheduler().Now();
    const bool knows_all = now - std::exchange(last_loss_, now) > kNoticed && AreAllKnown(status);
    if (status.phase == JobPhase::kRunning && status.shards_moving == 0 && knows_all)
      may_die_ = plan_.replication;
    // Nothing is there yet, and will not be when the coordinator hears of the loss.
    const SteadyTime heard = now + 4 * plan_.delay_max + milliseconds(1);
    if (!has_workers_ &&
        heard < started_ + std::ranges::min(std::span(plan_.worker_starts).first(plan_.workers)))
      return true;
    if (may_die_ == 0 && !plan_.may_lose) return false;
    if (may_die_ == 0) has_lost_ = true;
    may_die_ -= std::min(may_die_, 1U);
    return true;
  }

  bool AreAllKnown(const JobStatus& status) const {
    for (uint32_t i = 0; i < wanted_; ++i)
      if (job_.has_server(i) && leaving_.contains(job_.server_address(i))) return false;
    return job_.HasOnlyKnownServers(status, wanted_);
  }

  void HitServer(const Fault& fault) {
    std::vector<uint32_t> there;
    for (uint32_t i = 0; i < kServersMax; ++i)
      if (job_.has_server(i)) there.push_back(i);
    if (there.empty()) return;
    const uint32_t victim = there[fault.choice % there.size()];
    if (fault.kind == Kind::kLeaveServer) {
      // It may have the only copy of what has just been lost.
      if (job_.scheduler().Now() - last_loss_ <= kNoticed && !plan_.may_lose) return;
      if (job_.scheduler().Now() - last_loss_ <= kNoticed) has_lost_ = true;
      // Where few servers are left there are fewer copies, until the next process is there.
      kinds_done_.insert(fault.kind);
      may_die_ = 0;
      leaving_.insert(job_.server_address(victim));
      return job_.LeaveServer(victim);
    }
    if (!MayLoseServer()) return;
    kinds_done_.insert(fault.kind);
    if (fault.kind == Kind::kCutOffServer) {
      job_.CutOffServer(victim);
      job_.BreakSession(victim);
      return After(fault.lasts, [this] { job_.ReachAgain(); });
    }
    fault.kind == Kind::kKillServer ? job_.KillServer(victim) : job_.SuspectServer(victim);
    missing_.insert(victim);
    After(fault.lasts, [this, victim] { missing_.erase(victim); });
  }

  void KillColocated(const Fault& fault) {
    const uint32_t worker = fault.choice % plan_.workers;
    const uint32_t victim = ServerBeside(WorkerId{worker}).value();
    if (!job_.has_server(victim) || !MayLoseServer()) return;
    kinds_done_.insert(fault.kind);
    job_.KillServer(victim);
    After(fault.lasts, [this, worker] { StartColocated(worker); });
  }

  void Resize(uint32_t servers) {
    if (!job_.has_coordinator() || !job_.Resize(servers).ok()) return;
    kinds_done_.insert(Kind::kResize);
    wanted_ = servers;
    may_die_ = 0;  // while shards move, some have fewer copies
  }

  void LoseCoordinator(const Fault& fault) {
    if (!job_.has_coordinator()) return;
    kinds_done_.insert(fault.kind);
    has_lost_coordinator_ = true;
    job_.LureToIsolated();
    fault.kind == Kind::kKillCoordinator ? job_.KillCoordinator() : job_.IsolateCoordinator();
    After(fault.lasts, [this] {
      if (job_.has_coordinator()) return;
      job_.StartCoordinator();
      is_size_known_ = false;
      ResizeAgain();
    });
  }

  // Long enough for it to know that it was away. Its successor starts at once.
  void StopCoordinator(const Fault& fault) {
    if (!job_.has_coordinator()) return;
    kinds_done_.insert(fault.kind);
    has_lost_coordinator_ = true;
    const Duration lasts = std::chrono::seconds(5) + fault.lasts;
    job_.StopCoordinator(lasts);
    After(lasts + kRetry, [this] {
      is_size_known_ = false;
      ResizeAgain();
    });
  }

  // Of a change of size that a coordinator took with it into its grave nobody knows.
  void ResizeAgain() {
    is_size_known_ = job_.has_coordinator() && job_.Resize(wanted_).ok();
    if (is_size_known_) return;
    After(kRetry, [this] { ResizeAgain(); });
  }

  void BreakConnection(const Fault& fault) {
    const std::vector<std::string> names = job_.NodeNames();
    if (names.empty()) return;
    const std::string& a = names[fault.choice % names.size()];
    const std::string& b = names[fault.other % names.size()];
    if (a == b) return;
    kinds_done_.insert(fault.kind);
    job_.network().Break(a, b);
  }

  // Only while another has not come yet.
  void KillWorker(const Fault& fault) {
    const uint32_t victim = fault.choice % plan_.workers;
    if (victim + 1 == plan_.workers || !job_.has_worker(victim)) return;
    kinds_done_.insert(fault.kind);
    job_.KillWorker(victim);
    workers_.erase(victim);
    After(fault.lasts, [this, victim] { StartWorker(victim); });
  }

  bool MayFail() const { return has_lost_; }

  const Plan plan_;
  uint32_t wanted_;
  uint32_t may_die_;
  bool has_lost_ = false;  // more servers than there are copies
  bool has_lost_coordinator_ = false;
  bool has_given_up_ = false;
  bool has_workers_ = false;
  bool is_first_look_ = true;
  bool is_size_known_ = true;  // to the coordinator
  uint64_t looks_ = 0;
  SteadyTime last_loss_{};
  std::set<Kind> kinds_done_;
  Duration last_worker_start_{0};
  std::set<uint32_t> missing_;  // servers that are not started again yet
  std::set<std::string> leaving_;
  Draws draws_;
  std::map<uint32_t, Worker> workers_;
  std::string problem_;
  SimJob job_;
  SimExecutor script_;
  const SteadyTime started_;
};

// A checkpoint of kSteps, saved by one undisturbed job of so many workers.
struct Undisturbed {
  MemoryFileSystem files;
  Values values;  // after kSteps
  Values twice;   // after as many again, from the checkpoint
};

const Undisturbed& UndisturbedOf(const Plan& plan) {
  static std::map<std::pair<uint32_t, bool>, std::unique_ptr<Undisturbed>> known;
  auto& found = known[{plan.workers, plan.has_large_tensor}];
  if (found != nullptr) return *found;
  found = std::make_unique<Undisturbed>();
  Plan calm{.workers = plan.workers, .has_large_tensor = plan.has_large_tensor};
  {
    Early job(calm, 0, &found->files);
    EXPECT_EQ(job.Run(), "");
    EXPECT_TRUE(job.HasSaved());
    found->values = job.values(0);
  }
  calm.has_checkpoint = true;
  MemoryFileSystem files = found->files.AfterKill();
  Early job(calm, 0, &files);
  EXPECT_EQ(job.Run(), "");
  found->twice = job.values(0);
  return *found;
}

// What has been simulated, by hand and to see that all of it has.
struct Tally {
  std::map<Kind, uint64_t> schedules;  // with this kind of fault
  uint64_t failed = 0;                 // for an allowed reason
};

// Of the plan with its first faults; empty: as promised.
std::string ProblemOf(const Plan& plan, size_t num_faults, Tally& tally) {
  const Undisturbed& undisturbed = UndisturbedOf(plan);
  MemoryFileSystem files = undisturbed.files.AfterKill();
  Early job(plan, num_faults, plan.has_checkpoint ? &files : nullptr);
  std::string problem = job.Run();
  for (const Kind kind : job.kinds_done()) ++tally.schedules[kind];
  if (!problem.empty()) return problem;
  if (job.HasFailed() || job.has_given_up()) {
    ++tally.failed;
    return "";
  }
  const Values& expected = plan.has_checkpoint ? undisturbed.twice : undisturbed.values;
  for (uint32_t w = 0; w < plan.workers; ++w) {
    if (job.values(w) == expected || job.MayDiffer()) continue;
    return absl::StrCat("the values of worker-", w, " differ");
  }
  return "";
}

// The shortest beginning of a plan that has a problem.
std::string DescribeShortest(const Plan& plan) {
  Tally ignored;
  for (size_t count = 0; count <= plan.faults.size(); ++count) {
    const std::string problem = ProblemOf(plan, count, ignored);
    if (!problem.empty()) return absl::StrCat(problem, "; ", Describe(plan, count));
  }
  return "not again";
}

TEST(SimEarlyTest, FaultsFromTheFirstProcessOnDoNotShow) {
  // A sanitizer needs a path, not a schedule.
  const Seeds seeds = SeedsToRun(kSeedStride == 1 ? 15'000 : 5'000);
  Tally tally;
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    const Plan plan = DrawPlan(seed);
    const std::string problem = ProblemOf(plan, plan.faults.size(), tally);
    EXPECT_EQ(problem, "") << "replay: PUSHPULL_SIM_SEEDS=" << seed
                           << ":1\nshortest: " << DescribeShortest(plan);
  }
  std::printf("%lu schedules, %lu failed for an allowed reason\n", seeds.count, tally.failed);
  for (const auto& [kind, schedules] : tally.schedules)
    std::printf("%s: in %lu\n", kKindNames[static_cast<size_t>(kind)], schedules);
  EXPECT_TRUE(seeds.count < 1000 || tally.schedules.size() == kKindNames.size());
}

}  // namespace
}  // namespace pushpull
