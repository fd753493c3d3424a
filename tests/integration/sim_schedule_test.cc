// SPDX-License-Identifier: Apache-2.0
//
// The model-based test: whole jobs of the product's own code over a fake clock, with faults from a
// seed, and the promises of the protocol checked after every event. A schedule has servers that
// die, leave, hang on as zombies, come back and are added or removed; workers that die and are
// replaced; broken connections; lost, repeated and reordered frames; late control messages.
//
// Worker w pushes 2^w to every value, the sum of a step is subtracted: so the difference between
// two versions of a chunk says who contributed, and how often. With backup workers all chunks of a
// step must have the same contributors, as many as are wanted, except for those who die in it. With
// the gate all of them must have the same, except for those who die in a step in which a server
// dies too. Workers of one host push jointly in some jobs. Where gradients are clipped, what a step
// has subtracted has the norm that is allowed; exactly, as long as no worker has died and none was
// given up.
//
// In half of the schedules some pushes have no gradient, which follows from seed, step, tensor and
// worker alone. Weight decay, which halves the values, then says whether the optimizer was run: not
// in a step without any gradient, and every worker is told the same about it.
//
// PUSHPULL_SIM_SEEDS=FIRST:COUNT runs other seeds than the standard ones, PUSHPULL_SIM_LOG=1 prints
// what the job says.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/seeds.h"
#include "tests/fakes/sim_job.h"

namespace pushpull {
namespace {

constexpr uint32_t kServersMax = 5;

// By then all servers have heard that a suspected one has no part any more.
constexpr Duration kTakeOver = std::chrono::milliseconds(5);

// Who counts in a step.
enum class Counting { kAll, kFirst, kGated, kClipped, kJoint };

class Schedule {
 public:
  Schedule(uint64_t seed, Counting counting)
      : random_(seed),
        is_clipped_(counting == Counting::kClipped),
        workers_((counting == Counting::kAll || is_clipped_ ? 1 : 2) + Draw(3)),
        backup_workers_(counting == Counting::kFirst ? 1 + Draw(workers_ - 1) : 0),
        is_gated_(counting == Counting::kGated),
        is_joint_(counting == Counting::kJoint),
        replication_(Draw(3)),
        wanted_(replication_ + 1 + Draw(2)),
        steps_(4 + Draw(8)),
        kills_workers_(Draw(is_gated_ ? 2 : 3) == 0),
        kills_servers_(!is_gated_ || Draw(2) == 0),
        loses_coordinators_(Draw(2) == 0),
        absence_seed_(seed % 2 == 0 ? seed + 1 : 0),
        job_(MakeOptions(seed)) {
    job_.control().SetDelay([this] { return std::chrono::microseconds(Draw(1500)); });
    for (uint32_t t = 0; t < 1 + Draw(4); ++t) AddTensor(t);
    if (is_clipped_) Clip();
    for (uint32_t w = 0; w < workers_; ++w) StartWorker(w);
  }

  // Empty: the job has kept every promise.
  std::string Run() {
    for (uint32_t faults = Draw(12); faults > 0; --faults) {
      // Long enough now and then for a new coordinator not to wait for the missing any longer.
      const uint32_t longest = job_.Status().phase == JobPhase::kRecovering ? 5'000'000 : 20'000;
      const SteadyTime until = job_.scheduler().Now() + std::chrono::microseconds(Draw(longest));
      RunUntil([&] { return job_.scheduler().Now() >= until; }, std::chrono::seconds(5));
      if (!problem_.empty()) return problem_;
      InjectFault();
    }
    // Faults have stopped: everything comes to life again.
    quiet_ = true;
    job_.ReachAgain();
    if (!job_.has_coordinator()) job_.StartCoordinator();
    RunUntil([&] { return job_.Status().phase != JobPhase::kRecovering; }, std::chrono::minutes(2));
    // Of a change of size that a coordinator took with it into its grave nobody knows.
    if (job_.Status().phase == JobPhase::kRunning) Resize(wanted_);
    InprocOptions network = job_.network().options();
    network.faults.loss = 0;
    job_.network().SetOptions(network);
    has_settled_ = RunUntil(
        [&] {
          return job_.Status().shards_moving == 0 &&
                 job_.HasOnlyKnownServers(job_.Status(), wanted_);
        },
        std::chrono::minutes(5));
    const bool has_ended =
        has_settled_ && RunUntil([&] { return IsDone(); }, std::chrono::minutes(5));
    if (problem_.empty() && !has_ended) problem_ = DescribeStuck();
    return problem_;
  }

 private:
  struct Worker {
    bool is_registered = false;
    bool is_dead = false;
    bool may_fail = false;  // no coordinator could reach it for a while
    std::shared_ptr<PendingOperation> registration;
    uint64_t step = 0;  // under way, or next
    uint64_t first_step = 0;
    std::vector<std::shared_ptr<PendingOperation>> pending;
    std::shared_ptr<PendingOperation> leave;
    std::vector<std::vector<float>> values;
    std::vector<std::vector<float>> gradients;
  };

  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  // ---- pushes without a gradient ----

  bool IsOneIn(uint32_t count, std::initializer_list<uint64_t> of) const {
    uint64_t mixed = absence_seed_;
    for (const uint64_t part : of) mixed = (mixed ^ part) * 0x9e3779b97f4a7c15 ^ (mixed >> 29);
    return absence_seed_ > 0 && (mixed >> 32) % count == 0;
  }
  // Nobody has any.
  bool IsEmptyStep(uint64_t step) const { return IsOneIn(5, {step}); }
  bool HasGradient(uint32_t worker, uint64_t step, size_t tensor) const {
    // The first tensor tells who counts where not all do.
    const bool tells = tensor == 0 && (backup_workers_ > 0 || is_gated_);
    if (IsEmptyStep(step)) return false;
    return tells || !(IsOneIn(4, {step, tensor + 1}) || IsOneIn(3, {step, tensor + 1, worker + 1}));
  }
  // As a sum of pushes.
  int64_t MaskOf(uint64_t step, size_t tensor) const {
    int64_t mask = 0;
    for (uint32_t worker = 0; worker < workers_; ++worker)
      if (HasGradient(worker, step, tensor)) mask |= int64_t{1} << worker;
    return mask;
  }
  double Decay() const { return absence_seed_ > 0 && !is_clipped_ ? 0.5 : 0; }

  SimJobOptions MakeOptions(uint64_t seed) {
    SimJobOptions options{.settings = {.job = "sim",
                                       .workers = workers_,
                                       .servers = wanted_,
                                       .replication = replication_,
                                       .deterministic = Draw(2) == 0},
                          .consistency = {.backup_workers = backup_workers_, .gated = is_gated_},
                          .seed = seed,
                          .lanes = 1 + Draw(2)};
    if (is_joint_) {
      options.local_reduce = LocalReduce::kHost;
      options.nodes = 1 + Draw(2);
    }
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs
    if (std::getenv("PUSHPULL_SIM_LOG") != nullptr) options.log_level = LogLevel::kDebug;
    const Duration delay_max = std::chrono::microseconds(Draw(3000));
    SetNetwork(options, delay_max, Draw(3) == 0);
    return options;
  }

  void AddTensor(uint32_t index) {
    // Now and then one of two chunks.
    const int64_t size = Draw(12) == 0 ? 300'000 : 1 + Draw(40);
    TensorSpec spec{
        .name = "t" + std::to_string(index), .dims = {size}, .reduction = Reduction::kSum};
    spec.optimizer.kind = OptimizerKind::kSgd;
    spec.optimizer.learning_rate = 1;
    spec.optimizer.weight_decay = Decay();
    specs_.push_back(spec);
  }

  // Some tensors, the first always. The limit is above the norm now and then.
  void Clip() {
    double values = 0;
    for (size_t t = 0; t < specs_.size(); ++t) {
      if (t > 0 && Draw(4) == 0) continue;
      specs_[t].clip_norm = 1;
      values += static_cast<double>(specs_[t].dims[0]);
    }
    full_norm_ = FullSum() * std::sqrt(values);
    clip_norm_ = full_norm_ * (1 + Draw(12)) / 10;
    for (TensorSpec& spec : specs_)
      if (spec.clip_norm > 0) spec.clip_norm = clip_norm_;
  }
  // What a step of all workers subtracts from the tensor.
  double ClippedSum(size_t tensor, uint64_t step) const {
    double squares = 0;
    for (size_t t = 0; t < specs_.size(); ++t) {
      const auto sum = static_cast<double>(MaskOf(step, t));
      if (specs_[t].clip_norm > 0) squares += sum * sum * static_cast<double>(specs_[t].dims[0]);
    }
    const auto own = static_cast<double>(MaskOf(step, tensor));
    return squares > 0 ? own * std::min(1.0, clip_norm_ / std::sqrt(squares)) : 0;
  }
  double FullSum() const { return std::ldexp(1.0, static_cast<int>(workers_)) - 1; }

  void StartWorker(uint32_t index) {
    Worker& worker = worker_states_[index] = Worker{};
    WorkerNode& node = job_.StartWorker(index);
    node.Join();
    std::vector<TensorRegistration> registrations;
    for (const TensorSpec& spec : specs_) {
      const auto size = static_cast<size_t>(spec.dims[0]);
      worker.values.emplace_back(size, 0.0F);
      worker.gradients.emplace_back(size, std::ldexp(1.0F, static_cast<int>(index)));
    }
    for (size_t t = 0; t < specs_.size(); ++t)
      registrations.push_back({.spec = specs_[t], .value = worker.values[t]});
    worker.registration = node.Register(registrations);
  }

  // ---- driving and checking, between any two events ----

  template <typename Condition>
  bool RunUntil(Condition condition, Duration limit) {
    return job_.scheduler().RunUntil(
        [&] {
          KeepProcesses();
          for (auto& [index, worker] : worker_states_) Drive(index, worker);
          return !problem_.empty() || condition();
        },
        limit);
  }

  bool IsDone() {
    return std::all_of(worker_states_.begin(), worker_states_.end(), [&](const auto& entry) {
      return entry.second.leave != nullptr && entry.second.leave->is_done();
    });
  }

  void KeepProcesses() {
    if (job_.scheduler().Now() >= reached_at_) {
      job_.ReachAgain();
      reached_at_ = SteadyTime::max();
    }
    for (ServerLoss& loss : server_losses_) {
      if (job_.scheduler().Now() <= loss.until) loss.steps.last = StepsUnderWay().last;
    }
    for (uint32_t i = 0; i < kServersMax; ++i) {
      if (job_.has_server(i) && job_.server_has_ended(i)) job_.KillServer(i);
      if (!job_.has_coordinator()) continue;  // it would give up at once
      if (i < wanted_ && !job_.has_server(i) && !missing_.contains(i)) job_.StartServer(i);
    }
    if (quiet_) missing_.clear();
  }

  void Drive(uint32_t index, Worker& worker) {
    if (worker.is_dead) {
      // Its replacement; the launcher waits until the coordinator has noticed.
      if (job_.has_coordinator()) StartWorker(index);
      return;
    }
    if (!worker.is_registered) FinishRegistration(index, worker);
    if (!worker.is_registered) return;
    const bool all_done = std::all_of(worker.pending.begin(),
                                      worker.pending.end(),
                                      [](const auto& one) { return one->is_done(); });
    if (!all_done) return;
    if (!worker.pending.empty() && !FinishStep(index, worker)) return;
    if (worker.step < steps_) return Push(index, worker);
    // Nobody leaves before all has come to rest: when the last one has, the job is over.
    if (has_settled_ && worker.leave == nullptr) worker.leave = job_.worker(index).Leave();
  }

  // False: the worker goes no further, or there is a problem.
  bool FinishStep(uint32_t index, Worker& worker) {
    std::vector<bool> had_gradient;
    for (const auto& one : worker.pending) {
      const absl::Status status = Result(*one);
      if (!status.ok() && worker.may_fail) {
        KillWorker(index);
        return false;
      }
      if (!status.ok()) {
        Report("worker-", index, ": ", status.ToString());
        return false;
      }
      had_gradient.push_back(one->has_gradient());
    }
    worker.pending.clear();
    // After a full restart its first step may be done already for some chunks. With backup
    // workers a push may have no part in its step.
    const bool must_count = worker.step > worker.first_step || !replaced_.contains(index);
    if (must_count && backup_workers_ == 0) pushed_[worker.step].insert(index);
    const uint64_t before = std::exchange(worker.step, job_.worker(index).next_step().value());
    const bool may_skip = backup_workers_ > 0;
    if (worker.step <= before || (worker.step > before + 1 && !may_skip)) {
      Report("worker-", index, " comes from step ", before, " to ", worker.step);
      return false;
    }
    HearOfGradients(index, worker.step, had_gradient);
    Observe(index, worker);
    return true;
  }

  void FinishRegistration(uint32_t index, Worker& worker) {
    if (!worker.registration->is_done()) return;
    const absl::Status status = Result(*worker.registration);
    if (!status.ok() && worker.may_fail) return KillWorker(index);
    if (!status.ok()) return Report("worker-", index, " cannot register: ", status.ToString());
    worker.is_registered = true;
    worker.step = worker.first_step = job_.worker(index).start_step().value();
    // After a full restart the values may be of different versions until the first step is done.
    if (!replaced_.contains(index) || backup_workers_ > 0) Observe(index, worker);
  }

  void Push(uint32_t index, Worker& worker) {
    for (size_t t = 0; t < specs_.size(); ++t) {
      const bool has_gradient = HasGradient(index, worker.step, t);
      auto handle = job_.worker(index).PushPull(
          specs_[t].name,
          has_gradient ? ConstTensorValues(worker.gradients[t]) : ConstTensorValues(),
          worker.values[t],
          {.has_gradient = has_gradient});
      if (!handle.ok()) return Report("worker-", index, ": ", handle.status().ToString());
      worker.pending.push_back(*handle);
    }
  }

  // Of the step that made `version`, the same is told to all, and the truth.
  void HearOfGradients(uint32_t index, uint64_t version, const std::vector<bool>& had_gradient) {
    for (size_t t = 0; t < specs_.size(); ++t) {
      const auto [known, is_new] = had_gradient_[t].try_emplace(version, had_gradient[t]);
      const bool may_have = MaskOf(version - 1, t) != 0;
      if (known->second == had_gradient[t] && (may_have || !had_gradient[t])) continue;
      Report("worker-",
             index,
             " hears that the step before version ",
             version,
             " of t",
             t,
             had_gradient[t] ? " had a gradient" : " had no gradient");
    }
  }

  // The worker holds version worker.step of every tensor.
  void Observe(uint32_t index, const Worker& worker) {
    for (size_t t = 0; t < specs_.size(); ++t) {
      const std::vector<float>& values = worker.values[t];
      auto& seen = seen_[t][worker.step];
      if (seen.empty()) {
        seen = values;
      } else if (seen != values) {
        return Report("fork: version ",
                      worker.step,
                      " of t",
                      t,
                      " at worker-",
                      index,
                      " begins with ",
                      values[0],
                      ", another saw ",
                      seen[0]);
      }
      if (worker.step == 0) continue;
      const auto before = seen_[t].find(worker.step - 1);
      if (before == seen_[t].end() || before->second.empty()) continue;
      CheckContributors(t, worker.step, before->second, values);
    }
  }

  void CheckContributors(size_t tensor,
                         uint64_t version,
                         const std::vector<float>& before,
                         const std::vector<float>& after) {
    // A worker that begins with this version has pushed nothing to it.
    const auto heard = had_gradient_[tensor].find(version);
    if (heard == had_gradient_[tensor].end() && absence_seed_ > 0) return;
    const bool had_gradient = heard == had_gradient_[tensor].end() || heard->second;
    if (!had_gradient && before != after)
      return Report("version ", version, " of t", tensor, " was made without a gradient");
    if (specs_[tensor].clip_norm > 0) return CheckClipped(tensor, version, before, after);
    for (const size_t i : {size_t{0}, after.size() - 1}) {
      const std::optional<int64_t> mask =
          Contributors(tensor, i, had_gradient, before[i], after[i]);
      if (!mask.has_value()) {
        return Report("version ",
                      version,
                      " of t",
                      tensor,
                      ": ",
                      after[i],
                      " after ",
                      before[i],
                      " is no sum of contributions");
      }
      if (backup_workers_ > 0) CheckAdmitted(tensor, version, *mask);
      if (is_gated_) CheckGate(tensor, version, *mask);
      CheckAnswered(tensor, version, *mask);
    }
  }

  // Whose pushes have changed the value; nullopt if no set of workers can have done that.
  std::optional<int64_t> Contributors(
      size_t tensor, size_t i, bool had_gradient, float before, float after) const {
    // Whose gradients were in it may all have died before they came to this chunk, and so may the
    // admitted.
    const bool may_be_none = (backup_workers_ > 0 && (tensor > 0 || i > 0) && !replaced_.empty()) ||
                             (absence_seed_ > 0 && MayLackWorkers());
    const double sum = before * (1 - Decay()) - after;
    const bool is_whole = sum == std::floor(sum);
    const double limit = std::ldexp(1.0, static_cast<int>(workers_));
    const bool is_sum = is_whole && sum >= 1 && sum < limit;
    if (before == after && (!had_gradient || (may_be_none && !is_sum))) return 0;
    const double least = may_be_none || !had_gradient ? 0 : 1;
    if (!is_whole || sum < least || sum >= limit) return std::nullopt;
    return static_cast<int64_t>(sum);
  }

  void CheckAnswered(size_t tensor, uint64_t version, int64_t mask) {
    for (const uint32_t worker : pushed_[version - 1]) {
      if ((mask >> worker) % 2 != 0 || !HasGradient(worker, version - 1, tensor)) continue;
      return Report("version ",
                    version,
                    " of t",
                    tensor,
                    " lacks worker-",
                    worker,
                    ", whose push was answered: ",
                    mask);
    }
  }

  // Steps go on without a worker that has died, and without one that a new coordinator has not
  // heard from in time, which may learn that later than the others.
  bool MayLackWorkers() const {
    return !replaced_.empty() ||
           std::any_of(worker_states_.begin(), worker_states_.end(), [](const auto& entry) {
             return entry.second.may_fail;
           });
  }

  void CheckClipped(size_t tensor,
                    uint64_t version,
                    const std::vector<float>& before,
                    const std::vector<float>& after) {
    const double expected = ClippedSum(tensor, version - 1);
    for (size_t i = 0; i < after.size(); i += std::max<size_t>(1, after.size() - 1)) {
      const double change = double{before[i]} - after[i];
      // Without one of the workers the gradients are smaller.
      const bool is_right = MayLackWorkers() ? (change > 0 || (change == 0 && absence_seed_ > 0)) &&
                                                   change <= FullSum() * (1 + 1e-4)
                                             : std::abs(change - expected) <= 1e-4 * expected;
      if (is_right) continue;
      return Report("version ",
                    version,
                    " of t",
                    tensor,
                    " has changed by ",
                    change,
                    ", clipped would be ",
                    expected);
    }
  }

  // `mask` of one of the step's chunks; the first chunk comes first.
  void CheckAdmitted(size_t tensor, uint64_t version, int64_t mask) {
    if (IsEmptyStep(version - 1)) return;
    const int64_t admitted = admitted_.try_emplace(version, mask).first->second;
    int64_t dead = 0;
    for (const uint32_t worker : replaced_) dead |= int64_t{1} << worker;
    const auto count = static_cast<uint32_t>(std::popcount(static_cast<uint64_t>(admitted)));
    const bool is_as_many = MayLackWorkers() ? count <= workers_ - backup_workers_
                                             : count == workers_ - backup_workers_;
    const int64_t missing = admitted & MaskOf(version - 1, tensor) & ~mask;
    if (is_as_many && (mask & ~admitted) == 0 && (missing & ~dead) == 0) return;
    Report("version ",
           version,
           " of t",
           tensor,
           " has contributors ",
           mask,
           ", the first chunk has ",
           admitted);
  }

  // All chunks have the contributors of the one that is seen first.
  void CheckGate(size_t tensor, uint64_t version, int64_t mask) {
    const int64_t first = admitted_.try_emplace(version, mask).first->second;
    const auto lost = [&](uint32_t worker) {
      return std::any_of(deaths_[worker].begin(), deaths_[worker].end(), [&](const Steps& death) {
        return death.Has(version - 1) &&
               std::any_of(server_losses_.begin(), server_losses_.end(), [&](const auto& loss) {
                 return loss.steps.Has(version - 1);
               });
      });
    };
    for (uint32_t worker = 0; worker < workers_; ++worker) {
      const bool is_even =
          ((first ^ mask) >> worker) % 2 == 0 || !HasGradient(worker, version - 1, tensor);
      if (is_even || lost(worker)) continue;
      return Report("version ",
                    version,
                    " of t",
                    tensor,
                    " has contributors ",
                    mask,
                    ", another chunk has ",
                    first);
    }
  }

  // The steps that are under way.
  struct Steps {
    uint64_t first = 0;
    uint64_t last = 0;
    bool Has(uint64_t step) const { return step >= first && step <= last; }
  };
  // A suspected server goes on with its part until others have it.
  struct ServerLoss {
    Steps steps;
    SteadyTime until;
  };
  Steps StepsUnderWay() const {
    Steps steps{.first = ~uint64_t{0}};
    for (const auto& [index, worker] : worker_states_) {
      if (!worker.is_registered) continue;
      steps.first = std::min(steps.first, worker.step);
      steps.last = std::max(steps.last, worker.step);
    }
    return steps;
  }

  static absl::Status Result(PendingOperation& operation) {
    return operation.Wait(Deadline::After(Duration::zero()));
  }

  template <typename... Parts>
  void Report(const Parts&... parts) {
    if (problem_.empty()) problem_ = absl::StrCat(parts...);
  }

  std::string DescribeStuck() {
    std::string text = absl::StrCat(
        "stuck: ", job_.Status().shards_moving, " shards moving, ", job_.Status().failure);
    for (const auto& [index, worker] : worker_states_) {
      absl::StrAppend(&text,
                      "; worker-",
                      index,
                      worker.is_registered ? " in step " : " joining ",
                      worker.step,
                      " of ",
                      steps_);
    }
    return text;
  }

  // ---- faults ----

  void InjectFault() {
    const JobStatus status = job_.Status();
    if (status.phase == JobPhase::kRecovering) return InjectIntoGap(status);
    if (Draw(5) == 0 && loses_coordinators_) return LoseCoordinator();
    if (status.phase != JobPhase::kRunning) return;
    switch (Draw(7)) {
      case 6:
        return LeaveServers();
      case 0:
      case 1:
        return LoseServers(status);
      case 2:
        return Resize(std::min(kServersMax, replication_ + 1 + Draw(kServersMax - replication_)));
      case 3:
        return BreakConnection();
      case 4:
        if (kills_workers_) KillAnyWorker();
        return;
      default:
        if (!missing_.empty()) missing_.erase(missing_.begin());
        return;
    }
  }

  // Back before the coordinator gives up waiting for whoever holds something alone; where others
  // hold the same it counts as dead.
  void CutOffServer() {
    const uint32_t victim = Draw(kServersMax);
    const bool may_be_missed = replication_ == 0 || may_die_ > 0;
    if (has_cut_off_ || !may_be_missed || !job_.has_server(victim) || !kills_servers_) return;
    has_cut_off_ = true;
    if (replication_ > 0) --may_die_;
    job_.CutOffServer(victim);
    reached_at_ = job_.scheduler().Now() + std::chrono::milliseconds(Draw(15'000));
  }

  void LoseCoordinator() {
    has_cut_off_ = false;
    job_.LureToIsolated();
    // Who has not been welcomed yet takes it that there is no coordinator.
    for (auto& [index, worker] : worker_states_) worker.may_fail |= !worker.is_registered;
    if (Draw(2) == 0) {
      job_.KillCoordinator();
    } else {
      job_.IsolateCoordinator();
    }
  }

  // There is no coordinator, or it is hearing what members know; some cannot tell it.
  void InjectIntoGap(const JobStatus& status) {
    switch (Draw(7)) {
      case 6:
        return LeaveServers();
      case 5:
        return CutOffServer();
      case 0:
        return BreakConnection();
      case 1:
        if (kills_workers_) CutOffWorker();
        return;
      case 2:
        return LoseServers(status);
      case 3:
        if (Draw(3) == 0 && job_.has_coordinator()) return LoseCoordinator();
        [[fallthrough]];
      default:
        if (!job_.has_coordinator()) job_.StartCoordinator();
    }
  }

  void CutOffWorker() {
    const uint32_t index = Draw(workers_);
    if (!job_.has_worker(index)) return;
    worker_states_[index].may_fail = true;
    job_.CutOffWorker(index);
  }

  // As many as may die between two moments at which everything is in its place; also while
  // shards are moving.
  void LoseServers(const JobStatus& status) {
    const bool is_settled = status.phase == JobPhase::kRunning && status.shards_moving == 0;
    const bool is_whole =
        is_settled && job_.HasOnlyKnownServers(status, wanted_) && !IsAnyLeaving();
    if (is_whole) may_die_ = replication_;
    for (uint32_t i = Draw(3); i > 0 && may_die_ > 0; --i) {
      const uint32_t victim = Draw(kServersMax);
      if (!job_.has_server(victim) || !kills_servers_) continue;
      --may_die_;
      const bool is_suspected = Draw(3) == 0;
      const Duration lasts = is_suspected ? kTakeOver : Duration::zero();
      server_losses_.push_back({StepsUnderWay(), job_.scheduler().Now() + lasts});
      if (is_suspected) {
        job_.SuspectServer(victim);
      } else {
        job_.KillServer(victim);
      }
      if (Draw(2) == 0) missing_.insert(victim);  // it comes back later
    }
  }

  // Their processes are told to end, one alone or two at a time. Where few servers are left there
  // are fewer copies, until the next processes are there.
  void LeaveServers() {
    for (uint32_t i = 1 + Draw(2); i > 0; --i) {
      const uint32_t leaver = Draw(kServersMax);
      if (!job_.has_server(leaver)) continue;
      may_die_ = 0;
      leaving_.insert(job_.server_address(leaver));
      job_.LeaveServer(leaver);
    }
  }

  bool IsAnyLeaving() const {
    for (uint32_t i = 0; i < kServersMax; ++i) {
      if (job_.has_server(i) && leaving_.contains(job_.server_address(i))) return true;
    }
    return false;
  }

  void Resize(uint32_t servers) {
    const absl::Status resized = job_.Resize(servers);
    if (!resized.ok()) return Report("resize to ", servers, ": ", resized.ToString());
    wanted_ = servers;
  }

  void BreakConnection() {
    const std::vector<std::string> names = job_.NodeNames();
    if (names.empty()) return;
    const std::string& a = names[Draw(static_cast<uint32_t>(names.size()))];
    const std::string& b = names[Draw(static_cast<uint32_t>(names.size()))];
    if (a != b) job_.network().Break(a, b);
  }

  void KillAnyWorker() {
    const uint32_t victim = Draw(workers_);
    const Worker& worker = worker_states_[victim];
    if (worker.is_registered && !worker.is_dead && worker.leave == nullptr) KillWorker(victim);
  }

  void KillWorker(uint32_t victim) {
    Worker& worker = worker_states_[victim];
    deaths_[victim].push_back(StepsUnderWay());
    job_.KillWorker(victim);
    worker.is_dead = true;
    worker.is_registered = false;
    replaced_.insert(victim);
  }

  std::mt19937_64 random_;
  const bool is_clipped_;
  const uint32_t workers_;
  const uint32_t backup_workers_;
  const bool is_gated_;
  const bool is_joint_;
  const uint32_t replication_;
  uint32_t wanted_;
  const uint64_t steps_;
  const bool kills_workers_;
  const bool kills_servers_;
  const bool loses_coordinators_;
  const uint64_t absence_seed_;  // 0: every push has a gradient
  SimJob job_;
  std::vector<TensorSpec> specs_;
  double clip_norm_ = 0;
  double full_norm_ = 0;  // of the clipped tensors' gradients, when all workers contribute
  std::map<uint32_t, Worker> worker_states_;
  uint32_t may_die_ = 0;
  bool has_cut_off_ = false;  // a server, since the coordinator was lost
  SteadyTime reached_at_ = SteadyTime::max();
  std::set<std::string> leaving_;  // addresses of servers that were told to end
  std::set<uint32_t> missing_;     // servers that have died and are not started again yet
  std::set<uint32_t> replaced_;    // workers that have died before
  std::map<uint64_t, std::set<uint32_t>> pushed_;  // by step, whose push was answered
  std::map<uint64_t, int64_t> admitted_;           // by version: contributors of the first chunk
  std::map<size_t, std::map<uint64_t, bool>> had_gradient_;  // by tensor and version, as heard
  std::vector<ServerLoss> server_losses_;
  std::map<uint32_t, std::vector<Steps>> deaths_;                  // of workers
  std::map<size_t, std::map<uint64_t, std::vector<float>>> seen_;  // by tensor and version
  bool quiet_ = false;
  bool has_settled_ = false;
  std::string problem_;
};

void ExpectKept(Counting counting) {
  const Seeds seeds = SeedsToRun(1200);
  for (uint64_t seed = seeds.first; seed < seeds.end(); ++seed) {
    Schedule schedule(seed, counting);

    const std::string problem = schedule.Run();

    EXPECT_EQ(problem, "") << "replay: PUSHPULL_SIM_SEEDS=" << seed << ":1";
  }
}

TEST(SimScheduleTest, EveryPromiseIsKeptUnderAnySchedule) {
  ExpectKept(Counting::kAll);
}

TEST(SimScheduleTest, BackupWorkersKeepThemToo) {
  ExpectKept(Counting::kFirst);
}

TEST(SimScheduleTest, GatedStepsKeepThemToo) {
  ExpectKept(Counting::kGated);
}

TEST(SimScheduleTest, ClippedStepsKeepThemToo) {
  ExpectKept(Counting::kClipped);
}

TEST(SimScheduleTest, JointPushesKeepThemToo) {
  ExpectKept(Counting::kJoint);
}

}  // namespace
}  // namespace pushpull
