// SPDX-License-Identifier: Apache-2.0
//
// A whole job in one thread over a fake clock: coordinator, servers and workers with the product's
// own code, sessions and channels in process, faults from a seed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/log.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/server/server.h"
#include "runtime/worker/worker_node.h"
#include "tests/fakes/inproc/inproc_transport.h"
#include "tests/fakes/inproc_control.h"
#include "tests/fakes/memory_file_system.h"
#include "tests/fakes/sim_executor.h"

namespace pushpull {

struct SimJobOptions {
  JobSettings settings;
  Consistency consistency = {};  // what the job begins with
  uint64_t seed = 1;
  InprocOptions network;
  size_t lanes = 2;  // of each server
  Duration resend_after = std::chrono::milliseconds(20);
  bool bypasses_codecs = false;  // of every worker
  FaultPoint fault_point;        // in every server and worker
  LogLevel log_level = LogLevel::kError;
  std::optional<CheckpointPolicy> checkpoint = {};
  // What the workers have takes the place of what a lost server had.
  bool repairs_losses = false;
  LocalReduce local_reduce = LocalReduce::kNone;
  uint32_t nodes = 1;                  // hosts of the workers, which they take in turn
  bool has_colocated_servers = false;  // StartServer(ServerBeside(...)) starts them
  Duration loss_grace = std::chrono::seconds(20);
  // Where checkpoints are, outliving the job; null: a disk of the job's own.
  FileSystem* files = nullptr;
};

// Messages take up to `delay_max`; of those of a lossy network some are lost, repeated or
// reordered.
void SetNetwork(SimJobOptions& options, Duration delay_max, bool is_lossy);

// Of a deterministic job named "sim" whose messages take up to two milliseconds.
SimJobOptions DeterministicSim(uint32_t workers,
                               uint32_t servers,
                               uint32_t replication,
                               uint64_t seed = 1);
// Likewise, with checkpoints in `folder` of `files`, saved when asked for.
SimJobOptions WithCheckpoints(SimJobOptions options, std::string folder, FileSystem& files);

// Thread-confined to the test.
class SimJob {
 public:
  // Starts coordinator and servers; workers start with StartWorker.
  explicit SimJob(SimJobOptions options);
  ~SimJob();

  // A server with this index, which must not be there; `weight` as of its process.
  void StartServer(uint32_t index, double weight = 1);
  // The process is gone: its session ends and its connections break.
  void KillServer(uint32_t index);
  // The coordinator loses its session to the server, which goes on with what it was doing and
  // reaches no coordinator any more.
  void SuspectServer(uint32_t index);

  // Its process is told to end, and is in no hurry.
  void LeaveServer(uint32_t index) { servers_.at(index)->server->Leave(); }

  // Its session ends; it connects again, unless it is cut off.
  void BreakSession(uint32_t server) { control_.CloseOf(servers_.at(server)->control); }
  // Suspected servers reach a coordinator again.
  void ReturnSuspected() { cut_off_.clear(); }

  // The process is gone; members go on.
  void KillCoordinator();
  // It goes on, but every session with it has ended: it holds everybody for dead.
  void IsolateCoordinator();
  // It runs nothing for so long, and its members end their sessions meanwhile.
  void StopCoordinator(Duration duration);
  // One with a higher term than all before, which hears first what members know.
  void StartCoordinator();
  bool has_coordinator() const {
    return !coordinators_.empty() && coordinators_.back()->is_reachable &&
           !coordinator_executor_.is_stopped();
  }
  // Members cannot reach a coordinator for now.
  void CutOffServer(uint32_t index) { cut_off_.insert(&servers_.at(index)->control); }
  void CutOffWorker(uint32_t index) { cut_off_.insert(&workers_.at(index)->executor); }
  void ReachAgain();
  // When the present coordinator is gone, the servers that it knows now reach an isolated one of
  // before it, until there is another.
  void LureToIsolated() { lured_ = KnownServers(); }
  bool has_server(uint32_t index) const { return servers_.contains(index); }
  // It stopped by itself, because the coordinator told it to.
  bool server_has_ended(uint32_t index) const { return servers_.at(index)->has_ended; }
  const std::string& server_address(uint32_t index) const {
    return servers_.at(index)->server->data_address();
  }
  // Servers 0 to `count` - 1 are there and wanted, and the coordinator whose status this is knows
  // each by its present process.
  bool HasOnlyKnownServers(const JobStatus& status, uint32_t count) const;
  absl::Status Resize(uint32_t servers) { return coordinator().Resize({.servers = servers}); }
  absl::Status ResizeWorkers(uint32_t workers) {
    return coordinator().Resize({.workers = workers});
  }
  absl::Status SetGlobalBatch(uint64_t batch) {
    return coordinator().Resize({.servers = {}, .workers = {}, .global_batch = batch});
  }
  absl::StatusOr<uint64_t> SaveCheckpoint() { return coordinator().SaveCheckpoint(); }
  absl::Status SetMode(const ModeChange& change) { return coordinator().SetMode(change); }

  WorkerNode& StartWorker(uint32_t index);
  // The process is gone: its session ends and its connections break.
  void KillWorker(uint32_t index);
  WorkerNode& worker(uint32_t index) { return *workers_.at(index)->node; }
  bool has_worker(uint32_t index) const { return workers_.contains(index); }

  // Runs the job until the operation is done; an error where it is not within a simulated hour.
  absl::Status Wait(const std::shared_ptr<PendingOperation>& pending);
  // All at once, so that operations that need each other can finish.
  absl::Status WaitAll(const std::vector<std::shared_ptr<PendingOperation>>& pending);

  // Of phase kRecovering while there is no coordinator.
  JobStatus Status();
  // Text of the server's metrics.
  std::string ServerMetricsText(uint32_t index) const {
    return servers_.at(index)->registry.Text();
  }
  std::string WorkerMetricsText(uint32_t index) const {
    return workers_.at(index)->registry.Text();
  }
  std::string CoordinatorMetricsText() const { return coordinators_.back()->registry.Text(); }
  SimScheduler& scheduler() { return scheduler_; }
  InprocControl& control() { return control_; }
  // What the network calls the nodes that are there.
  std::vector<std::string> NodeNames() const;
  InprocNetwork& network() { return network_; }

 private:
  FileSystem& files() { return options_.files == nullptr ? own_files_ : *options_.files; }
  JobCoreOptions CoreOptions();

  struct ServerHost {
    ServerHost(SimScheduler& scheduler, InprocNetwork& network, size_t num_lanes);
    MetricsRegistry registry;
    ServerMetrics metrics;
    SimExecutor control;
    std::vector<std::unique_ptr<SimExecutor>> lanes;
    InprocTransport transport;
    std::unique_ptr<Server> server;
    bool has_ended = false;
  };
  struct WorkerHost {
    WorkerHost(SimScheduler& scheduler, InprocNetwork& network);
    MetricsRegistry registry;
    WorkerMetrics metrics;
    SimExecutor executor;
    InprocTransport transport;
    std::unique_ptr<WorkerNode> node;
  };

  // A coordinator's process, which its members' sessions may outlive.
  struct CoordinatorHost final : SessionEvents {
    CoordinatorHost() : metrics(registry) {}
    void OnMessage(SessionId session, FromMember message) override;
    void OnClosed(SessionId session, const absl::Status& why) override;
    JobStatus GetStatus() override { return coordinator->GetStatus(); }
    absl::Status Resize(const JobSize& size) override { return coordinator->Resize(size); }
    absl::StatusOr<uint64_t> SaveCheckpoint() override { return coordinator->SaveCheckpoint(); }
    absl::Status SetMode(const ModeChange& change) override { return coordinator->SetMode(change); }
    absl::StatusOr<uint64_t> StartTrace(const TraceRequest& request) override {
      return coordinator->StartTrace(request);
    }
    absl::StatusOr<TraceParts> TakeTrace(uint64_t number, uint64_t from) override {
      return coordinator->TakeTrace(number, from);
    }
    MetricsRegistry registry;
    CoordinatorMetrics metrics;
    std::unique_ptr<Coordinator> coordinator;  // null: the process is gone
    bool is_reachable = true;
  };
  void OnStepDown(CoordinatorHost& host);
  Coordinator& coordinator() { return *coordinators_.back()->coordinator; }
  SessionEvents* RouteOf(const Executor& member) const;
  std::set<const Executor*> KnownServers();

  const SimJobOptions options_;
  const Log log_;
  SimScheduler scheduler_;
  InprocNetwork network_;
  SimExecutor coordinator_executor_;
  InprocControl control_;
  MemoryFileSystem own_files_;
  SimExecutor disk_;  // of the whole job
  CheckpointKeeper checkpoints_;
  std::vector<std::unique_ptr<CoordinatorHost>> coordinators_;  // the last one's term is highest
  std::set<const Executor*> cut_off_;
  std::set<const Executor*> lured_;
  std::map<uint32_t, std::unique_ptr<ServerHost>> servers_;
  std::vector<std::unique_ptr<ServerHost>> dead_servers_;  // their lanes end by what they posted
  uint64_t next_incarnation_ = 1;
  std::map<uint32_t, std::unique_ptr<WorkerHost>> workers_;
};

}  // namespace pushpull
