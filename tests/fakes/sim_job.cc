// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/sim_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace pushpull {
namespace {

std::vector<std::unique_ptr<SimExecutor>> MakeExecutors(SimScheduler& scheduler, size_t count) {
  std::vector<std::unique_ptr<SimExecutor>> executors;
  executors.reserve(count);
  for (size_t i = 0; i < count; ++i) executors.push_back(std::make_unique<SimExecutor>(scheduler));
  return executors;
}

std::vector<Executor*> Pointers(const std::vector<std::unique_ptr<SimExecutor>>& executors) {
  std::vector<Executor*> pointers;
  pointers.reserve(executors.size());
  for (const auto& executor : executors) pointers.push_back(executor.get());
  return pointers;
}

}  // namespace

void SetNetwork(SimJobOptions& options, Duration delay_max, bool is_lossy) {
  options.network.faults.delay_max = delay_max;
  if (!is_lossy) return;
  options.network.faults.loss = 0.03;
  options.network.faults.duplication = 0.05;
  options.network.faults.reordering = 0.1;
}

SimJobOptions DeterministicSim(uint32_t workers,
                               uint32_t servers,
                               uint32_t replication,
                               uint64_t seed) {
  SimJobOptions options{.settings = {.job = "sim",
                                     .workers = workers,
                                     .servers = servers,
                                     .replication = replication,
                                     .deterministic = true},
                        .seed = seed};
  options.network.faults.delay_max = std::chrono::milliseconds(2);
  return options;
}

SimJobOptions WithCheckpoints(SimJobOptions options, std::string folder, FileSystem& files) {
  options.checkpoint =
      CheckpointPolicy{.folder = std::move(folder), .every = std::chrono::hours(100)};
  options.files = &files;
  return options;
}

SimJob::ServerHost::ServerHost(SimScheduler& scheduler, InprocNetwork& network, size_t num_lanes)
    : metrics(registry),
      control(scheduler),
      lanes(MakeExecutors(scheduler, num_lanes)),
      transport(network, Pointers(lanes)) {}

SimJob::WorkerHost::WorkerHost(SimScheduler& scheduler, InprocNetwork& network)
    : metrics(registry), executor(scheduler), transport(network, {&executor}) {}

SimJob::SimJob(SimJobOptions options)
    : options_(std::move(options)),
      log_("sim", options_.log_level),
      network_(options_.seed, options_.network),
      coordinator_executor_(scheduler_),
      control_(coordinator_executor_),
      disk_(scheduler_),
      checkpoints_(disk_, files()) {
  control_.SetRoute([this](const Executor& member) { return RouteOf(member); });
  StartCoordinator();
  for (uint32_t i = 0; i < options_.settings.servers; ++i) StartServer(i);
}

JobCoreOptions SimJob::CoreOptions() {
  JobCoreOptions core{.settings = options_.settings,
                      .consistency = options_.consistency,
                      .local_reduce = options_.local_reduce,
                      .checkpoint = options_.checkpoint,
                      .loss_grace = options_.loss_grace,
                      .repairs_losses = options_.repairs_losses};
  core.has_colocated_servers = options_.has_colocated_servers;
  core.settings.keeps_copies = options_.repairs_losses && core.settings.replication == 0;
  if (!options_.checkpoint) return core;
  core.checkpoint->owner = {.job_namespace = "sim", .job = options_.settings.job};
  const std::string& folder = core.checkpoint->folder;
  absl::StatusOr<RestoreChoice> found = FindRestore(
      files(), {.root = folder, .folder = folder, .job = core.checkpoint->owner}, "latest");
  PUSHPULL_CHECK(found.ok());
  core.restore = std::move(found->checkpoint);
  return core;
}

void SimJob::StartServer(uint32_t index, double weight) {
  PUSHPULL_CHECK(!servers_.contains(index));
  auto host = std::make_unique<ServerHost>(scheduler_, network_, options_.lanes);
  ServerHost& started = *host;
  absl::StatusOr<std::unique_ptr<Server>> server =
      Server::Start({.server = ServerId{index},
                     .incarnation = Incarnation{next_incarnation_++},
                     .job = options_.settings.job,
                     .listen = "host:0",
                     .weight = weight,
                     .fault_point = options_.fault_point,
                     .ask_again_after = options_.resend_after,
                     .leaves_alone_after = std::chrono::hours(1)},
                    {host->control, host->transport, control_, host->metrics, disk_, files()},
                    log_,
                    [&started](const absl::Status&) { started.has_ended = true; });
  PUSHPULL_CHECK(server.ok());
  host->server = *std::move(server);
  servers_[index] = std::move(host);
}

bool SimJob::HasOnlyKnownServers(const JobStatus& status, uint32_t count) const {
  std::set<std::string> known;
  for (const ServerStatus& server : status.servers) known.insert(server.data_address);
  for (uint32_t i = 0; i < count; ++i)
    if (!has_server(i) || !known.contains(server_address(i))) return false;
  return status.desired_servers == count;
}

void SimJob::KillServer(uint32_t index) {
  servers_.at(index)->server.reset();
  dead_servers_.push_back(std::move(servers_.at(index)));
  servers_.erase(index);
}

void SimJob::CoordinatorHost::OnMessage(SessionId session, FromMember message) {
  if (coordinator != nullptr) coordinator->OnMessage(session, std::move(message));
}

void SimJob::CoordinatorHost::OnClosed(SessionId session, const absl::Status& why) {
  if (coordinator != nullptr) coordinator->OnClosed(session, why);
}

void SimJob::StartCoordinator() {
  auto host = std::make_unique<CoordinatorHost>();
  using Kind = JobCoreOptions::Recovery;
  const Kind recovery = coordinators_.empty() ? Kind::kNone : Kind::kExpected;
  JobCoreOptions core = CoreOptions();
  core.term = Term{coordinators_.size() + 1};
  core.recovery = recovery;
  if (core.checkpoint) core.checkpoint->first_attempt += coordinators_.size() << 32;
  CoordinatorHost& started = *host;
  host->coordinator = std::make_unique<Coordinator>(
      std::move(core), coordinator_executor_, control_, host->metrics, checkpoints_, log_);
  host->coordinator->SetStepDown([this, &started](const std::string&) { OnStepDown(started); });
  coordinators_.push_back(std::move(host));
}

// As its process does: ends, and is started again with a higher term.
void SimJob::OnStepDown(CoordinatorHost& host) {
  coordinator_executor_.Post([this, &host] {
    if (host.coordinator == nullptr) return;
    control_.Disconnect(host);
    host.coordinator.reset();
    if (std::exchange(host.is_reachable, false)) StartCoordinator();
  });
}

void SimJob::IsolateCoordinator() {
  coordinators_.back()->is_reachable = false;
  control_.Disconnect(*coordinators_.back());
}

void SimJob::StopCoordinator(Duration duration) {
  coordinator_executor_.Stop(duration);
  control_.Disconnect(*coordinators_.back());
}

void SimJob::KillCoordinator() {
  IsolateCoordinator();
  coordinators_.back()->coordinator.reset();
}

void SimJob::ReachAgain() {
  cut_off_.clear();
  for (const auto& host : dead_servers_) cut_off_.insert(&host->control);
}

std::set<const Executor*> SimJob::KnownServers() {
  std::set<const Executor*> known;
  if (Status().phase == JobPhase::kRecovering) return known;
  const JobStatus status = Status();
  for (const ServerStatus& server : status.servers) {
    const auto host = servers_.find(server.server.value());
    const bool is_it =
        host != servers_.end() && host->second->server->data_address() == server.data_address;
    if (is_it) known.insert(&host->second->control);
  }
  return known;
}

SessionEvents* SimJob::RouteOf(const Executor& member) const {
  if (cut_off_.contains(&member)) return nullptr;
  CoordinatorHost& last = *coordinators_.back();
  if (last.is_reachable) return &last;
  if (!lured_.contains(&member)) return nullptr;
  for (size_t i = 0; i + 1 < coordinators_.size(); ++i) {
    if (coordinators_[i]->coordinator != nullptr) return coordinators_[i].get();
  }
  return nullptr;
}

JobStatus SimJob::Status() {
  if (has_coordinator()) return coordinator().GetStatus();
  JobStatus status;
  status.phase = JobPhase::kRecovering;
  return status;
}

void SimJob::SuspectServer(uint32_t index) {
  cut_off_.insert(&servers_.at(index)->control);
  control_.CloseOf(servers_.at(index)->control);
  dead_servers_.push_back(std::move(servers_.at(index)));
  servers_.erase(index);
}

std::vector<std::string> SimJob::NodeNames() const {
  std::vector<std::string> names;
  for (const auto& [index, host] : servers_) names.push_back(host->transport.name());
  for (const auto& [index, host] : workers_) names.push_back(host->transport.name());
  return names;
}

SimJob::~SimJob() {
  // Lanes end by what their servers post; after that nothing is left to run.
  while (!workers_.empty()) KillWorker(workers_.begin()->first);
  for (auto& [index, host] : servers_) host->server.reset();
  for (auto& host : dead_servers_) host->server.reset();
  scheduler_.RunUntilIdle();
}

WorkerNode& SimJob::StartWorker(uint32_t index) {
  auto host = std::make_unique<WorkerHost>(scheduler_, network_);
  std::shared_ptr<GroupPort> group_port;
  if (options_.local_reduce != LocalReduce::kNone) {
    absl::StatusOr<std::unique_ptr<GroupPort>> port =
        GroupPort::Listen(host->transport, options_.settings.job, "host:0");
    PUSHPULL_CHECK(port.ok());
    group_port = *std::move(port);
  }
  host->node = std::make_unique<WorkerNode>(
      WorkerNodeOptions{.job = options_.settings.job,
                        .worker = WorkerId{index},
                        .incarnation = Incarnation{next_incarnation_++},
                        .resend_after = options_.resend_after,
                        .bypasses_codecs = options_.bypasses_codecs,
                        .group_port = std::move(group_port),
                        .node = absl::StrCat("node-", index % options_.nodes),
                        .fault_point = options_.fault_point},
      WorkerDependencies{host->executor, host->transport, control_, host->metrics},
      log_);
  WorkerNode& node = *host->node;
  workers_[index] = std::move(host);
  return node;
}

void SimJob::KillWorker(uint32_t index) {
  workers_.at(index)->node.reset();
  cut_off_.erase(&workers_.at(index)->executor);
  workers_.erase(index);
}

absl::Status SimJob::Wait(const std::shared_ptr<PendingOperation>& pending) {
  return WaitAll({pending});
}

absl::Status SimJob::WaitAll(const std::vector<std::shared_ptr<PendingOperation>>& pending) {
  const auto all_done = [&] {
    return std::all_of(
        pending.begin(), pending.end(), [](const auto& operation) { return operation->is_done(); });
  };
  scheduler_.RunUntil(all_done, std::chrono::hours(1));
  absl::Status status;
  for (const auto& operation : pending)
    status.Update(operation->Wait(Deadline::After(Duration::zero())));
  return status;
}

}  // namespace pushpull
