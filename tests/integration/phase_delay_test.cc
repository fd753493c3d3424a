// SPDX-License-Identifier: Apache-2.0
//
// A delay of 50 ms in one phase of synchronization appears in that phase and in no other, over each
// channel: servers and workers with their threads and sockets, in one process.
//
// The delay is where it is in a job: in the network, in another worker, in a follower; where a
// phase is code alone, in that code (FaultPoint).
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

#include "runtime/base/event_loop.h"
#include "runtime/base/mutex.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/server/server.h"
#include "runtime/transport/member_transport.h"
#include "runtime/worker/worker_node.h"
#include "tests/fakes/inproc_control.h"
#include "tests/fakes/memory_file_system.h"
#include "tests/fakes/slow_network.h"

namespace pushpull {
namespace {

constexpr Duration kDelay = std::chrono::milliseconds(50);
// Of the lower quartile of so many steps: what a busy machine adds to most steps is not in it, what
// is in every step is.
constexpr size_t kSteps = 12;
constexpr double kOwnMin = 0.040;
constexpr double kOwnMax = 0.090;
constexpr double kOthersMax = 0.010;
constexpr Duration kPatience = std::chrono::seconds(60);
constexpr size_t kValues = 16'384;  // 64 KiB: one chunk
constexpr char kJob[] = "slow";

struct Network {
  const char* name;     // of the test
  const char* channel;  // label of the metrics
};
constexpr std::array<Network, 3> kNetworks = {{{"Tcp", "tcp"}, {"Shm", "shm"}, {"Grpc", "grpc"}}};

using PhaseSeconds = std::array<double, kSyncPhaseCount>;

// The calling thread does nothing for so long.
void StandStill(Duration duration) {
  Mutex mu;
  CondVar never;
  const Deadline end = Deadline::After(duration);
  MutexLock lock(mu);
  while (!end.has_passed()) never.WaitUntil(mu, end);
}

// Something that another thread does; false: not within kPatience.
class Event {
 public:
  void Set() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    is_set_ = true;
    changed_.NotifyAll();
  }
  bool Wait() ABSL_LOCKS_EXCLUDED(mu_) {
    const Deadline deadline = Deadline::After(kPatience);
    MutexLock lock(mu_);
    while (!is_set_) {
      if (!changed_.WaitUntil(mu_, deadline)) return is_set_;
    }
    return true;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool is_set_ ABSL_GUARDED_BY(mu_) = false;
};

void RunOn(Executor& executor, const std::function<void()>& task) {
  const auto done = std::make_shared<Event>();
  executor.Post([task, done] {
    task();
    done->Set();
  });
  ASSERT_TRUE(done->Wait());
}

// A loop on which InprocControl may set timers from any thread.
class AnyThreadExecutor final : public Executor {
 public:
  explicit AnyThreadExecutor(EventLoop& loop) : loop_(loop) {}

  void Post(std::function<void()> task) override { loop_.Post(std::move(task)); }
  TimerId RunAt(SteadyTime when, std::function<void()> task) override {
    if (loop_.is_loop_thread()) return loop_.RunAt(when, std::move(task));
    loop_.Post([this, when, task = std::move(task)] { loop_.RunAt(when, task); });
    return 0;
  }
  void Cancel(TimerId timer) override { loop_.Cancel(timer); }
  SteadyTime Now() const override { return loop_.Now(); }

 private:
  EventLoop& loop_;
};

double Series(const MetricsRegistry& registry, const std::string& series) {
  const std::string text = "\n" + registry.Text();
  const std::string name = absl::StrCat("\n", series, " ");
  const size_t at = text.find(name);
  return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size()));
}

// What every member calls in a phase of its own.
class SlowCode {
 public:
  void Set(std::optional<SyncPhase> slow) { slow_.store(slow ? static_cast<int>(*slow) : -1); }
  FaultPoint Hook() {
    return [this](SyncPhase phase) {
      if (static_cast<int>(phase) == slow_.load()) StandStill(kDelay);
    };
  }

 private:
  std::atomic<int> slow_ = -1;
};

TransportOptions OptionsOf(const Network& network, const ShmFolder& shm) {
  const std::string channel = network.channel;
  return {.has_grpc = channel == "grpc", .shm = channel == "shm" ? &shm : nullptr};
}

struct CoordinatorHost {
  explicit CoordinatorHost(const JobSettings& settings) {
    RunOn(loop, [&] {
      coordinator = std::make_unique<Coordinator>(JobCoreOptions{.settings = settings},
                                                  executor,
                                                  control,
                                                  metrics,
                                                  checkpoints,
                                                  Log("coordinator", LogLevel::kError));
      control.SetEvents(*coordinator);
    });
  }
  ~CoordinatorHost() { End(); }
  // First of all members, so that it does not act on the ends of the others. What they have sent
  // before is delivered.
  void End() {
    loop.Stop();
    coordinator.reset();
  }

  MetricsRegistry registry;
  CoordinatorMetrics metrics{registry};
  MemoryFileSystem files;
  EventLoop disk{"disk"};
  CheckpointKeeper checkpoints{disk, files};
  EventLoop loop{"coordinator"};
  AnyThreadExecutor executor{loop};
  InprocControl control{executor};
  std::unique_ptr<Coordinator> coordinator;
};

// One lane, behind a network of its own.
struct ServerHost {
  ServerHost(uint32_t index, const TransportOptions& options, CoordinatorHost& job, FaultPoint hook)
      : transport(MakeMemberTransport({&lane}, options)) {
    // An address that no other process of this machine uses, whatever the port.
    const int id = getpid();
    const std::string host =
        absl::StrCat("127.", index + 1, ".", (id >> 8) & 0xff, ".", 1 + (id & 0x7f));
    absl::StatusOr<std::unique_ptr<SlowNetwork>> listening = SlowNetwork::Listen(host);
    EXPECT_TRUE(listening.ok()) << listening.status();
    network = *std::move(listening);
    RunOn(control, [&] {
      absl::StatusOr<std::unique_ptr<Server>> started =
          Server::Start({.server = ServerId{index},
                         .incarnation = Incarnation{index + 1},
                         .job = kJob,
                         .listen = absl::StrCat(host, ":", network->port()),
                         .advertise_host = "127.0.0.1",
                         .fault_point = std::move(hook)},
                        {executor, *transport, job.control, metrics, disk, files},
                        Log("server", LogLevel::kError),
                        [](const absl::Status&) {});
      ASSERT_TRUE(started.ok()) << started.status();
      server = *std::move(started);
    });
  }
  ~ServerHost() {
    RunOn(control, [this] { server.reset(); });
    disk.Stop();  // it posts to the lane
    lane.Stop();
    control.Stop();
  }

  MetricsRegistry registry;
  ServerMetrics metrics{registry};
  MemoryFileSystem files;
  EventLoop disk{"disk"};
  EventLoop lane{"lane"};
  EventLoop control{"control"};
  AnyThreadExecutor executor{control};
  std::unique_ptr<Transport> transport;
  std::unique_ptr<SlowNetwork> network;
  std::unique_ptr<Server> server;
};

struct WorkerHost {
  WorkerHost(uint32_t index, const TransportOptions& options, CoordinatorHost& job, FaultPoint hook)
      : transport(MakeMemberTransport({&loop}, options)) {
    node =
        std::make_unique<WorkerNode>(WorkerNodeOptions{.job = kJob,
                                                       .worker = WorkerId{index},
                                                       .incarnation = Incarnation{index + 100},
                                                       .fault_point = std::move(hook)},
                                     WorkerDependencies{executor, *transport, job.control, metrics},
                                     Log("worker", LogLevel::kError));
    node->Join();
    TensorSpec spec{.name = "w", .dims = {kValues}};
    spec.optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 1};
    const TensorRegistration registration{.spec = spec, .value = value};
    registered = node->Register({&registration, 1});
  }
  ~WorkerHost() {
    RunOn(loop, [this] { node.reset(); });
    loop.Stop();
  }

  std::shared_ptr<PendingOperation> Push() {
    absl::StatusOr<std::shared_ptr<PendingOperation>> pushed =
        node->PushPull("w", gradient, value, {});
    EXPECT_TRUE(pushed.ok()) << pushed.status();
    return *std::move(pushed);
  }
  // Seconds of all steps so far.
  PhaseSeconds Total() {
    RunOn(loop, [] {});  // it counts a step after the program has its value
    PhaseSeconds seconds;
    for (size_t i = 0; i < kSyncPhaseCount; ++i) {
      const std::string phase(kSyncPhaseNames[i]);
      seconds[i] =
          Series(registry, absl::StrCat("pushpull_sync_phase_seconds_sum{phase=\"", phase, "\"}"));
    }
    return seconds;
  }

  std::vector<float> gradient = std::vector<float>(kValues, 1.0F);
  std::vector<float> value = std::vector<float>(kValues, 0.0F);
  MetricsRegistry registry;
  WorkerMetrics metrics{registry};
  EventLoop loop{"worker"};
  AnyThreadExecutor executor{loop};
  std::unique_ptr<Transport> transport;
  std::unique_ptr<WorkerNode> node;
  std::shared_ptr<PendingOperation> registered;
};

class PhaseDelayTest : public testing::TestWithParam<std::tuple<size_t, size_t>> {
 protected:
  PhaseDelayTest()
      : network_(kNetworks[std::get<0>(GetParam())]),
        phase_(static_cast<SyncPhase>(std::get<1>(GetParam()))) {}

  void Start() {
    const uint32_t num_servers = phase_ == SyncPhase::kReplicate ? 2 : 1;
    const uint32_t num_workers = phase_ == SyncPhase::kWait ? 2 : 1;
    job_ = std::make_unique<CoordinatorHost>(JobSettings{.job = kJob,
                                                         .workers = num_workers,
                                                         .servers = num_servers,
                                                         .replication = num_servers - 1});
    const TransportOptions options = OptionsOf(network_, shm_);
    for (uint32_t i = 0; i < num_servers; ++i)
      servers_.push_back(std::make_unique<ServerHost>(i, options, *job_, slow_code_.Hook()));
    for (uint32_t i = 0; i < num_workers; ++i)
      workers_.push_back(std::make_unique<WorkerHost>(i, options, *job_, slow_code_.Hook()));
    for (const auto& worker : workers_)
      ASSERT_TRUE(worker->registered->Wait(Deadline::After(kPatience)).ok());
    for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(Step(false).ok());  // everything is connected
  }

  void TearDown() override {
    if (job_ != nullptr) job_->End();
    workers_.clear();
    servers_.clear();
  }

  // The server that the push does not go to.
  ServerHost& Follower() {
    const std::string pushed =
        absl::StrCat("pushpull_push_bytes_total{channel=\"", network_.channel, "\"}");
    const bool is_first = Series(servers_[0]->registry, pushed) > 0;
    return *servers_[is_first ? 1 : 0];
  }

  absl::Status Step(bool is_slow) {
    if (is_slow && phase_ == SyncPhase::kReplicate) {
      const auto stands = std::make_shared<Event>();
      Follower().lane.Post([stands] {
        stands->Set();
        StandStill(kDelay);
      });
      if (!stands->Wait()) return absl::DeadlineExceededError("the follower's lane");
    }
    std::vector<std::shared_ptr<PendingOperation>> pushes = {workers_[0]->Push()};
    if (is_slow && phase_ == SyncPhase::kWait) StandStill(kDelay);
    if (workers_.size() > 1) pushes.push_back(workers_[1]->Push());
    absl::Status status;
    for (const auto& push : pushes) status.Update(push->Wait(Deadline::After(kPatience)));
    return status;
  }

  void Slow(bool is_slow) {
    const bool is_network = phase_ == SyncPhase::kWire || phase_ == SyncPhase::kReply;
    const bool is_elsewhere = phase_ == SyncPhase::kWait || phase_ == SyncPhase::kReplicate;
    if (is_network) {
      const auto delay = [&](SyncPhase of) {
        return is_slow && phase_ == of ? kDelay : Duration::zero();
      };
      servers_[0]->network->SetDelays(delay(SyncPhase::kWire), delay(SyncPhase::kReply));
    } else if (!is_elsewhere) {
      slow_code_.Set(is_slow ? std::optional(phase_) : std::nullopt);
    }
  }

  // The lower quartile of each phase over the next steps.
  PhaseSeconds Quartiles(bool is_slow) {
    std::array<std::vector<double>, kSyncPhaseCount> seconds;
    PhaseSeconds before = workers_[0]->Total();
    for (size_t step = 0; step < kSteps; ++step) {
      const absl::Status done = Step(is_slow);
      EXPECT_TRUE(done.ok()) << done;
      const PhaseSeconds after = workers_[0]->Total();
      for (size_t i = 0; i < kSyncPhaseCount; ++i) seconds[i].push_back(after[i] - before[i]);
      before = after;
    }
    PhaseSeconds quartiles;
    for (size_t i = 0; i < kSyncPhaseCount; ++i) {
      std::ranges::sort(seconds[i]);
      quartiles[i] = seconds[i][kSteps / 4];
    }
    return quartiles;
  }

  const Network& network_;
  const SyncPhase phase_;
  SlowCode slow_code_;
  const ShmFolder shm_{"/dev/shm", kJob, Log("shm", LogLevel::kError)};
  std::unique_ptr<CoordinatorHost> job_;
  std::vector<std::unique_ptr<ServerHost>> servers_;
  std::vector<std::unique_ptr<WorkerHost>> workers_;
};

TEST_P(PhaseDelayTest, ADelayAppearsInItsPhaseAndOnlyThere) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const PhaseSeconds quick = Quartiles(false);
  Slow(true);
  const PhaseSeconds slow = Quartiles(true);
  Slow(false);

  for (size_t i = 0; i < kSyncPhaseCount; ++i) {
    const double grown = slow[i] - quick[i];
    if (static_cast<SyncPhase>(i) == phase_) {
      EXPECT_GT(grown, kOwnMin) << kSyncPhaseNames[i];
      EXPECT_LT(grown, kOwnMax) << kSyncPhaseNames[i];
    } else {
      EXPECT_LT(grown, kOthersMax) << kSyncPhaseNames[i];
    }
  }
  EXPECT_GT(Series(workers_[0]->registry,
                   absl::StrCat("pushpull_push_bytes_total{channel=\"", network_.channel, "\"}")),
            0);
}

INSTANTIATE_TEST_SUITE_P(EveryChannelAndPhase,
                         PhaseDelayTest,
                         testing::Combine(testing::Range<size_t>(0, kNetworks.size()),
                                          testing::Range<size_t>(0, kSyncPhaseCount)),
                         [](const auto& instance) {
                           return absl::StrCat(kNetworks[std::get<0>(instance.param)].name,
                                               "_",
                                               kSyncPhaseNames[std::get<1>(instance.param)]);
                         });

}  // namespace
}  // namespace pushpull
