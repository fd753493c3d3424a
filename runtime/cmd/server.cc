// SPDX-License-Identifier: Apache-2.0
//
// `pushpull server`.
#include "runtime/server/server.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"

#include "runtime/base/exit_codes.h"
#include "runtime/base/host_port.h"
#include "runtime/base/memory_trim.h"
#include "runtime/base/status_macros.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/cmd/address_flag.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/environment.h"
#include "runtime/cmd/role_process.h"
#include "runtime/membership/session_client.h"
#include "runtime/metrics/http_exposer.h"
#include "runtime/tls/member_tls.h"
#include "runtime/transport/channel_choice.h"
#include "runtime/transport/member_transport.h"

namespace pushpull {
namespace {

struct ServerFlags {
  std::string job;
  uint32_t index = 0;
  std::string coordinator;
  std::string listen = "0.0.0.0:7171";
  std::string advertise;
  std::string metrics = "0.0.0.0:9464";
  uint32_t threads = 1;
  double weight = 1;
  std::string rack;
  double leave_seconds = kLeaveSeconds;
  double start_timeout_seconds = 300;
  std::string log_level = "info";
  int ready_fd = -1;
};

// Long enough that memory which a step frees and allocates again mostly stays.
constexpr Duration kServerTrimPeriod = std::chrono::seconds(10);

uint64_t RandomIncarnation() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

// From 0 to 1, different in each process.
double RandomJitter() {
  std::random_device random;
  return std::uniform_real_distribution<>(0, 1)(random);
}

// Workers receive the address on which the server listens, unless it advertises another.
absl::Status CheckCanBeFound(const ServerFlags& flags) {
  PUSHPULL_ASSIGN_OR_RETURN(const HostPort listen, ParseHostPort(flags.listen));
  if (!flags.advertise.empty() || !IsWildcard(listen)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::Substitute(
      "--listen $0 is every address of this host: add --advertise HOST, the one that workers "
      "connect to, or listen on that one alone",
      flags.listen));
}

using Lanes = std::vector<std::unique_ptr<EventLoop>>;

Lanes StartLanes(uint32_t num_lanes) {
  Lanes lanes;
  for (uint32_t i = 0; i < num_lanes; ++i)
    lanes.push_back(std::make_unique<EventLoop>(absl::StrCat("pp-lane-", i)));
  return lanes;
}

std::vector<EventLoop*> PointersTo(const Lanes& lanes) {
  std::vector<EventLoop*> pointers(lanes.size());
  std::ranges::transform(lanes, pointers.begin(), &std::unique_ptr<EventLoop>::get);
  return pointers;
}

Duration TotalBusy(const Lanes& lanes) {
  Duration busy{0};
  for (const auto& lane : lanes) busy += lane->busy();
  return busy;
}

struct DataPath {
  std::unique_ptr<ShmFolder> shm;  // for peers on this host; null: no shared memory
  TransportOptions options;
};

absl::StatusOr<DataPath> OpenDataPath(const std::string& job,
                                      const TlsFolder* tls,
                                      const Log& log) {
  const std::map<std::string, std::string> environment = Environment();
  DataPath path{.shm = nullptr, .options = {.tls = tls}};
  PUSHPULL_ASSIGN_OR_RETURN(path.options.payload_checksums, PayloadChecksumsFrom(environment));
  PUSHPULL_ASSIGN_OR_RETURN(path.options.buffers, SocketBuffersFrom(environment));
  PUSHPULL_ASSIGN_OR_RETURN(const ChannelChoice channel, ChooseChannel(environment));
  path.shm = OpenShmFolder(channel.shm_folder, job, log);
  path.options.shm = path.shm.get();
  path.options.has_grpc = channel.has_grpc;
  return path;
}

absl::StatusOr<int> RunServer(const ServerFlags& flags) {
  PUSHPULL_RETURN_IF_ERROR(CheckCanBeFound(flags));
  PUSHPULL_ASSIGN_OR_RETURN(const LogLevel level, ParseLogLevel(flags.log_level));
  const ServerId id{flags.index};
  const Log log(ToString(id), level);
  PUSHPULL_ASSIGN_OR_RETURN(const auto tls,
                            MemberTls::Open(Environment()[kTlsFolderVariable], log));
  PUSHPULL_ASSIGN_OR_RETURN(const DataPath data_path, OpenDataPath(flags.job, tls->folder(), log));
  if (data_path.options.has_grpc) ShareFreedMemory();  // in a flood of calls: 57 MiB, 97 without
  MetricsRegistry registry;
  ServerMetrics metrics(registry);
  RoleProcess process("pp-control");
  TrimMemoryEvery(kServerTrimPeriod, process.control());
  const Lanes lanes = StartLanes(flags.threads);
  const auto transport = MakeMemberTransport(PointersTo(lanes), data_path.options);
  PosixFileSystem files;
  EventLoop disk("pp-checkpoint");
  GrpcSessionConnector coordinator(flags.coordinator, tls->folder());

  std::unique_ptr<Server> server;
  std::atomic<Server*> running = nullptr;
  const auto is_ready = [&] {
    const Server* current = running.load();
    return current != nullptr && current->is_ready()
               ? absl::OkStatus()
               : absl::UnavailableError("not registered with the coordinator");
  };
  PUSHPULL_ASSIGN_OR_RETURN(
      std::unique_ptr<HttpExposer> exposer,
      HttpExposer::Start(
          {.listen = flags.metrics, .metrics = tls->AddTo(registry), .ready = is_ready}));
  PUSHPULL_RETURN_IF_ERROR(process.Call([&]() -> absl::Status {
    PUSHPULL_ASSIGN_OR_RETURN(
        server,
        Server::Start({.server = id,
                       .incarnation = Incarnation{RandomIncarnation()},
                       .job = flags.job,
                       .listen = flags.listen,
                       .advertise_host = flags.advertise,
                       .metrics_address = exposer->address(),
                       .weight = flags.weight,
                       .rack = flags.rack,
                       .busy_time = [&lanes] { return TotalBusy(lanes); },
                       .session = {.first_timeout = FromSeconds(flags.start_timeout_seconds),
                                   .jitter = RandomJitter()}},
                      {process.control(), *transport, coordinator, metrics, disk, files},
                      log,
                      [&](const absl::Status& status) { process.End(status); }));
    running = server.get();
    return absl::OkStatus();
  }));
  if (flags.leave_seconds > 0)
    process.LeaveOnWarning(FromSeconds(flags.leave_seconds), [&server] { server->Leave(); });
  ReportReady(flags.ready_fd,
              {.control = "", .data = server->data_address(), .metrics = exposer->address()});
  log.Info("listening", {{"data", server->data_address()}, {"metrics", exposer->address()}});

  const int exit_code = process.WaitForEnd();
  // In reverse order: first nobody reads metrics any more, then the role ends on its own thread,
  // then the lanes.
  exposer.reset();
  const absl::Status stopped = process.Call([&] {
    server.reset();
    return absl::OkStatus();
  });
  disk.Stop();  // it still posts to the lanes
  for (const auto& lane : lanes) lane->Stop();
  process.control().Stop();
  return stopped.ok() ? exit_code : kExitFailed;
}

}  // namespace

void AddServerCommand(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("server", "Serve parameters: the server role");
  const auto flags = std::make_shared<ServerFlags>();
  command->add_option("--job", flags->job, "Name of the job; workers of another are refused")
      ->required();
  command->add_option("--index", flags->index, "0-based index of this server in the job")
      ->required();
  command->add_option("--coordinator", flags->coordinator, "host:port of the coordinator")
      ->check(&WhyNoAddress)
      ->required();
  command->add_option("--listen", flags->listen, "host:port for tensors; port 0: a free one")
      ->check(&WhyNoAddress)
      ->capture_default_str();
  command->add_option("--advertise",
                      flags->advertise,
                      "Host that workers connect to; needed where --listen is 0.0.0.0 or [::]");
  command->add_option("--metrics", flags->metrics, "host:port of /metrics, /livez, /readyz")
      ->check(&WhyNoAddress)
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "Threads of the data path")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      ->add_option("--weight", flags->weight, "Share of the parameters relative to other servers")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--rack",
                   flags->rack,
                   "Rack of this host: the replicas of a shard are kept in different ones")
      ->envname("PUSHPULL_RACK");
  command
      ->add_option("--leave-seconds",
                   flags->leave_seconds,
                   "How long SIGTERM leaves it to hand what it holds to other servers; 0: it ends "
                   "at once. A second SIGTERM ends it at once, too")
      ->envname(kLeaveVariable)
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  command
      ->add_option("--start-timeout-seconds",
                   flags->start_timeout_seconds,
                   "How long to look for the coordinator at the start")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  command->add_option("--log-level", flags->log_level, "debug, info, warning or error")
      ->capture_default_str();
  command->add_option(
      "--ready-fd", flags->ready_fd, "Descriptor that is told the addresses once they are known");
  command->callback([flags, &exit_code] { exit_code = ReportRole(RunServer(*flags)); });
}

}  // namespace pushpull
