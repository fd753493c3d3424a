// SPDX-License-Identifier: Apache-2.0
//
// `pushpull coordinator`.
#include "runtime/coordinator/coordinator.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/exit_codes.h"
#include "runtime/base/memory_trim.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/time_source.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/cmd/address_flag.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/environment.h"
#include "runtime/cmd/manifest.h"
#include "runtime/cmd/role_process.h"
#include "runtime/job/checkpoint_place.h"
#include "runtime/job/restart_policy.h"
#include "runtime/membership/session_service.h"
#include "runtime/metrics/http_exposer.h"
#include "runtime/status/page_hosts.h"
#include "runtime/status/status_feed.h"
#include "runtime/tls/member_tls.h"

namespace pushpull {
namespace {

struct CoordinatorFlags {
  std::string manifest;
  std::vector<std::string> overrides;
  std::string listen = "0.0.0.0:7170";
  std::string metrics = "0.0.0.0:9464";
  uint64_t term = 1;
  std::string checkpoints;
  bool recovers = false;
  double leave_seconds = kLeaveSeconds;
  std::string log_level = "info";
  int ready_fd = -1;
};

// Several heartbeats are due within the time after which a silent member counts as dead.
constexpr Duration kHeartbeat = std::chrono::seconds(1);
constexpr int kHeartbeatsPerTimeout = 4;
// How often to check whether commands have received the job's end.
constexpr Duration kWaitersPeriod = std::chrono::milliseconds(20);
// A flood of gRPC calls takes and frees tens of MiB in this time.
constexpr Duration kCoordinatorTrimPeriod = std::chrono::seconds(2);

// The time until a successor runs: the node is lost, earlier failures delay the start, and it takes
// time to notice and to start.
Duration CoordinatorTimeout(const RestartSpec& restart) {
  constexpr std::chrono::seconds kNoticedAndStarted{120};
  return restart.node_lost_after + restart.max_delay + kNoticedAndStarted;
}

uint64_t RandomNumber() {
  std::random_device random;
  return (uint64_t{random()} << 32) + random();
}

uint64_t RandomAttempt() {
  std::random_device random;
  // Counts up from here for as long as the process lives.
  return (uint64_t{random()} << 32) + 1;
}

JobCoreOptions OptionsOf(const TrainingJob& job, const CoordinatorFlags& flags) {
  using Kind = JobCoreOptions::Recovery;
  // Even without --recover: an earlier coordinator may have left members behind.
  const Kind recovery = flags.recovers   ? Kind::kExpected
                        : flags.term > 1 ? Kind::kIfKnown
                                         : Kind::kNone;
  // Loss recovery makes sense only if the job continues with fewer servers or another one is
  // started.
  const bool repairs_losses = BackoffLimitOf(job.spec.restart, JobRole::kServer) > 0;
  return {
      .settings = {.job = job.metadata.name,
                   .workers = static_cast<uint32_t>(job.spec.workers.replicas),
                   .servers = static_cast<uint32_t>(job.spec.servers.replicas),
                   .replication = static_cast<uint32_t>(job.spec.servers.replication),
                   .global_batch = static_cast<uint64_t>(job.spec.workers.global_batch.value_or(0)),
                   .deterministic = job.spec.sync.deterministic,
                   .noise_scale = job.spec.sync.noise_scale,
                   .non_finite = job.spec.sync.non_finite,
                   .scale_by_staleness = job.spec.sync.scale_by_staleness,
                   .stall = job.spec.sync.stall,
                   .keeps_copies = repairs_losses && job.spec.servers.replication == 0,
                   .coordinator_timeout = CoordinatorTimeout(job.spec.restart)},
      .consistency = {.mode = job.spec.sync.mode,
                      .staleness = static_cast<uint32_t>(job.spec.sync.staleness),
                      .backup_workers = static_cast<uint32_t>(job.spec.sync.backup_workers),
                      .gated = job.spec.sync.gated},
      .min_servers = static_cast<uint32_t>(job.spec.servers.min_replicas),
      .max_servers = static_cast<uint32_t>(job.spec.servers.max_replicas),
      .min_workers = static_cast<uint32_t>(job.spec.workers.min_replicas),
      .max_workers = static_cast<uint32_t>(job.spec.workers.max_replicas),
      .local_reduce = job.spec.sync.local_reduce,
      .has_colocated_servers = job.spec.workers.colocated_server,
      .term = Term{flags.term},
      .ring_secret = RandomNumber(),
      .heartbeat = std::min<Duration>(
          kHeartbeat, Duration(job.spec.restart.peer_timeout) / kHeartbeatsPerTimeout),
      .on_stall = job.spec.sync.on_stall,
      .peer_timeout = job.spec.restart.peer_timeout,
      .success_policy = job.spec.restart.success_policy,
      .recovery = recovery,
      .loss_grace = repairs_losses ? Duration(job.spec.servers.loss_grace)
                                   : Duration(job.spec.restart.peer_timeout),
      .repairs_losses = repairs_losses};
}

absl::StatusOr<std::unique_ptr<HttpExposer>> ServePage(
    const std::string& listen,
    const JobMetadata& job,
    StatusFeed& feed,
    std::function<std::string(MetricsFormat)> metrics) {
  std::array<char, 256> machine{};  // no host has a longer name
  const bool is_known = gethostname(machine.data(), machine.size() - 1) == 0;
  PUSHPULL_ASSIGN_OR_RETURN(
      std::vector<std::string> names,
      PageHosts(job, is_known ? machine.data() : "", listen, Environment()[kPageHostsVariable]));
  return HttpExposer::Start({.listen = listen,
                             .metrics = std::move(metrics),
                             .ready = [] { return absl::OkStatus(); },
                             .resources = feed.Resources(),
                             .names = std::move(names)});
}

// Adds what spec.checkpoint asks for and the checkpoint that the job starts from. Blocks on the
// disk.
absl::Status AddCheckpoints(const CoordinatorFlags& flags,
                            const TrainingJob& job,
                            FileSystem& files,
                            const Log& log,
                            JobCoreOptions& options) {
  if (!job.spec.checkpoint) return absl::OkStatus();
  const CheckpointSpec& spec = *job.spec.checkpoint;
  CheckpointPlace place{.root = flags.checkpoints, .folder = "", .job = {}};
  if (place.root.empty()) {
    PUSHPULL_ASSIGN_OR_RETURN(place.root, CheckpointRoot(spec, ""));
  }
  place.folder = JobCheckpoints(place.root, job.metadata);
  place.job = {.job_namespace = NamespaceOf(job.metadata), .job = job.metadata.name};
  options.checkpoint = CheckpointPolicy{.folder = place.folder,
                                        .owner = place.job,
                                        .every = spec.every,
                                        .keep = static_cast<uint32_t>(spec.keep),
                                        .first_attempt = RandomAttempt()};
  options.step_before = NotedStep(files, place.folder);
  PUSHPULL_ASSIGN_OR_RETURN(RestoreChoice chosen, FindRestore(files, place, spec.restore_from));
  for (const Announce& line : chosen.said)
    line.is_problem ? log.Warning(line.text) : log.Info(line.text);
  options.restore = std::move(chosen.checkpoint);
  options.restores_values_only = spec.restore == RestoreScope::kValues;
  if (!options.restore) {
    log.Info("no checkpoint yet, the job starts from the beginning", {{"folder", place.folder}});
    return absl::OkStatus();
  }
  for (const ListedCheckpoint& skipped : options.restore->skipped) {
    if (absl::IsDataLoss(skipped.status))
      log.Warning("damaged checkpoint passed over", {{"why", skipped.status.message()}});
  }
  return absl::OkStatus();
}

// A checkpoint that cannot be used counts as a file that cannot be reached.
int ReportUnusable(const absl::Status& why) {
  Report(why);
  return kExitNotReachable;
}

// Lets waiting commands receive the job's end: they only poll now and then, and a launcher ends its
// coordinator at once.
void AwaitWaiters(RoleProcess& process, Coordinator& coordinator) {
  const Deadline deadline = Deadline::After(Waiters::kPatience);
  Mutex mu;
  CondVar never;
  bool is_waited_for = true;
  while (is_waited_for && !deadline.has_passed()) {
    const absl::Status asked = process.Call([&] {
      is_waited_for = coordinator.IsWaitedFor();
      return absl::OkStatus();
    });
    if (!asked.ok() || !is_waited_for) return;
    MutexLock lock(mu);
    never.WaitUntil(mu, Deadline::After(kWaitersPeriod));
  }
}

void LeaveOnWarning(const CoordinatorFlags& flags,
                    const TrainingJob& job,
                    RoleProcess& process,
                    const std::unique_ptr<Coordinator>& coordinator) {
  if (flags.leave_seconds == 0) return;
  const Duration grace =
      job.spec.checkpoint ? FromSeconds(flags.leave_seconds) : Coordinator::kNoticeTime;
  process.LeaveOnWarning(grace, [&process, &coordinator] {
    coordinator->Leave([&process] { process.End(absl::OkStatus()); });
  });
}

absl::StatusOr<int> RunCoordinator(const CoordinatorFlags& flags) {
  ShareFreedMemory();
  PUSHPULL_ASSIGN_OR_RETURN(const LogLevel level, ParseLogLevel(flags.log_level));
  PUSHPULL_ASSIGN_OR_RETURN(const TrainingJob job, LoadManifest(flags.manifest, flags.overrides));
  const Log log("coordinator", level);
  PUSHPULL_ASSIGN_OR_RETURN(const auto tls,
                            MemberTls::Open(Environment()[kTlsFolderVariable], log));
  PosixFileSystem files;
  JobCoreOptions options = OptionsOf(job, flags);
  const absl::Status found = AddCheckpoints(flags, job, files, log, options);
  if (absl::IsInvalidArgument(found)) return found;
  if (!found.ok()) return ReportUnusable(found);
  MetricsRegistry registry;
  CoordinatorMetrics metrics(registry);
  RoleProcess process("pp-coordinator");
  TrimMemoryEvery(kCoordinatorTrimPeriod, process.control());
  EventLoop disk("pp-checkpoint");
  CheckpointKeeper checkpoints(disk, files);
  StatusFeed feed(SystemTime());
  // The page shows the recovery even if the members report before the first tick.
  if (flags.recovers) {
    feed.Publish(UnixSeconds(),
                 {.job = job.metadata.name, .phase = JobPhase::kRecovering, .term = options.term});
  }
  PUSHPULL_ASSIGN_OR_RETURN(std::unique_ptr<HttpExposer> exposer,
                            ServePage(flags.metrics, job.metadata, feed, tls->AddTo(registry)));
  PUSHPULL_ASSIGN_OR_RETURN(
      const std::unique_ptr<CoordinatorService> service,
      CoordinatorService::Listen(flags.listen, process.control(), tls->folder()));
  std::unique_ptr<Coordinator> coordinator;
  PUSHPULL_RETURN_IF_ERROR(process.Call([&] {
    coordinator = std::make_unique<Coordinator>(
        std::move(options), process.control(), *service, metrics, checkpoints, log);
    coordinator->SetObserver(
        [&feed](JobStatus status) { feed.Publish(UnixSeconds(), std::move(status)); });
    coordinator->SetStepDown([&process](const std::string& why) {
      process.End(absl::AbortedError(
          absl::StrCat(why, ": steps down, the next coordinator asks the members")));
    });
    return absl::OkStatus();
  }));
  service->Serve(*coordinator);
  LeaveOnWarning(flags, job, process, coordinator);
  ReportReady(flags.ready_fd,
              {.control = service->address(), .data = "", .metrics = exposer->address()});
  log.Info("listening", {{"control", service->address()}, {"metrics", exposer->address()}});

  const int exit_code = process.WaitForEnd();
  AwaitWaiters(process, *coordinator);
  exposer.reset();
  const absl::Status told = process.Call([&] {
    coordinator->Stop(process.is_urgent() ? JobCore::Successor::kNone
                                          : JobCore::Successor::kMayCome);
    return absl::OkStatus();
  });
  service->Shutdown(Deadline::After(std::chrono::seconds(2)));
  const absl::Status stopped = process.Call([&] {
    coordinator.reset();
    return absl::OkStatus();
  });
  disk.Stop();
  process.control().Stop();
  return told.ok() && stopped.ok() ? exit_code : kExitFailed;
}

}  // namespace

void AddCoordinatorCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("coordinator", "Keep a job together: the coordinator role");
  const auto flags = std::make_shared<CoordinatorFlags>();
  command->add_option("--manifest", flags->manifest, "The job's TrainingJob manifest")->required();
  command->add_option("--set", flags->overrides, "Overrides a field: spec.servers.replicas=4")
      ->allow_extra_args(false);
  command->add_option("--listen", flags->listen, "host:port for members; port 0: a free one")
      ->check(&WhyNoAddress)
      ->capture_default_str();
  command
      ->add_option(
          "--metrics", flags->metrics, "host:port of /metrics, /livez, /readyz and the status page")
      ->check(&WhyNoAddress)
      ->capture_default_str();
  command
      ->add_option(
          "--term", flags->term, "Number of this start; higher than that of every earlier one")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--checkpoints",
                      flags->checkpoints,
                      "Absolute path of the folder that spec.checkpoint names, where it is not "
                      "that of its uri; all servers must see it under this path");
  command->add_flag("--recover",
                    flags->recovers,
                    "The job is under way: hear what its members know before anything else");
  command
      ->add_option("--leave-seconds",
                   flags->leave_seconds,
                   "How long SIGTERM leaves it to save the job's last step if all members end with "
                   "it; 0: it ends at once. A second SIGTERM ends it at once, too")
      ->envname(kLeaveVariable)
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  command->add_option("--log-level", flags->log_level, "debug, info, warning or error")
      ->capture_default_str();
  command->add_option(
      "--ready-fd", flags->ready_fd, "Descriptor that is told the addresses once they are known");
  command->callback([flags, &exit_code] { exit_code = ReportRole(RunCoordinator(*flags)); });
}

}  // namespace pushpull
