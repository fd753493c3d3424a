// SPDX-License-Identifier: Apache-2.0
//
// `pushpull status`.
#include <cstdio>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/base/exit_codes.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/running_job.h"
#include "runtime/membership/status_client.h"

namespace pushpull {
namespace {

constexpr Duration kWatchPeriod = std::chrono::seconds(1);

struct StatusFlags {
  JobFlags job;
  bool is_json = false;
  bool is_watching = false;
  uint32_t timeout_seconds = 0;
};

nlohmann::json ToJson(const JobStatus& status) {
  nlohmann::json state_losses = nlohmann::json::array();
  for (const StateLoss& loss : status.state_losses) state_losses.push_back(ToString(loss));
  nlohmann::json servers = nlohmann::json::array();
  for (const ServerStatus& server : status.servers) {
    servers.push_back({{"index", server.server.value()},
                       {"alive", server.is_alive},
                       {"data", server.data_address},
                       {"metrics", server.metrics_address},
                       {"pid", server.pid},
                       {"bytes", server.stats.bytes_owned},
                       {"version", server.stats.highest_version.value()}});
  }
  nlohmann::json workers = nlohmann::json::array();
  for (const WorkerStatus& worker : status.workers) {
    workers.push_back({{"index", worker.worker.value()},
                       {"alive", worker.is_alive},
                       {"member", worker.is_member},
                       {"metrics", worker.metrics_address},
                       {"pid", worker.pid},
                       {"step", worker.step.value()},
                       {"activity", ToString(worker.activity)}});
  }
  nlohmann::json culprits = nlohmann::json::array();
  for (const Culprit& culprit : status.culprits) {
    culprits.push_back({{"kind", std::string(NameOf(culprit.kind))},
                        {"member", MemberOf(culprit)},
                        {"seconds", culprit.seconds},
                        {"share", culprit.share}});
  }
  return {{"job", status.job},
          {"phase", std::string(NameOf(status.phase))},
          {"failure", status.failure},
          {"term", status.term.value()},
          {"epoch", status.epoch.counter},
          {"view", status.view},
          {"mode", std::string(NameOf(status.consistency.mode))},
          {"staleness", status.consistency.staleness},
          {"backup_workers", status.consistency.backup_workers},
          {"gated", status.consistency.gated},
          {"mode_changing", status.is_mode_changing},
          {"servers_wanted", status.desired_servers},
          {"workers_wanted", status.desired_workers},
          {"shards_moving", status.shards_moving},
          {"state_losses", state_losses},
          {"culprits", culprits},
          {"stalled", status.stall ? ToString(*status.stall) : ""},
          {"step", status.step.value()},
          {"samples", status.samples},
          {"uneven_steps", status.uneven_steps},
          {"seconds", status.seconds},
          {"sync",
           {{"p50_seconds", status.sync_seconds.At(0.5)},
            {"p99_seconds", status.sync_seconds.At(0.99)}}},
          {"checkpoint",
           {{"step", status.checkpoint.step.value()},
            {"saved", status.checkpoint.saved},
            {"failures", status.checkpoint.failures},
            {"failure", status.checkpoint.failure},
            {"problem", status.checkpoint.problem},
            {"is_saving", status.checkpoint.finished < status.checkpoint.requested},
            {"seconds", status.checkpoint.seconds}}},
          {"servers", servers},
          {"workers", workers}};
}

void PrintTable(const JobStatus& status) {
  std::printf("%s: %s, step %lu, epoch %s, view %lu, sync p50 %.2f ms, p99 %.2f ms\n",
              status.job.c_str(),
              std::string(NameOf(status.phase)).c_str(),
              status.step.value(),
              ToString(status.epoch).c_str(),
              status.view,
              status.sync_seconds.At(0.5) * 1e3,
              status.sync_seconds.At(0.99) * 1e3);
  std::printf("mode %s", Describe(status.consistency).c_str());
  std::printf("%s\n", status.is_mode_changing ? ", changing" : "");
  if (!status.mode_problem.empty()) std::printf("%s\n", status.mode_problem.c_str());
  if (!status.failure.empty()) std::printf("failed: %s\n", status.failure.c_str());
  if (status.stall) std::printf("stalled: %s\n", ToString(*status.stall).c_str());
  for (const Culprit& culprit : status.culprits)
    std::printf("slow: %s\n", ToString(culprit).c_str());
  for (const StateLoss& loss : status.state_losses)
    std::printf("lost: %s\n", ToString(loss).c_str());
  if (status.uneven_steps > 0) std::printf("uneven steps: %lu\n", status.uneven_steps);
  if (status.shards_moving > 0 || status.servers.size() != status.desired_servers) {
    std::printf("servers: %zu, %u wanted; %lu shards to move\n",
                status.servers.size(),
                status.desired_servers,
                status.shards_moving);
  }
  const CheckpointStatus& checkpoint = status.checkpoint;
  if (checkpoint.requested > 0) {
    std::printf("checkpoints: %lu saved, the last of step %lu in %.2f s; %lu failed%s\n",
                checkpoint.saved,
                checkpoint.step.value(),
                checkpoint.seconds,
                checkpoint.failures,
                checkpoint.finished < checkpoint.requested ? "; one under way" : "");
  }
  if (!checkpoint.problem.empty())
    std::printf("checkpoints fail: %s\n", checkpoint.problem.c_str());
  std::printf("%-10s %-22s %10s %10s\n", "server", "data", "MiB", "version");
  for (const ServerStatus& server : status.servers) {
    std::printf("%-10s %-22s %10.1f %10lu\n",
                ToString(server.server).c_str(),
                server.data_address.c_str(),
                static_cast<double>(server.stats.bytes_owned) / (1 << 20),
                server.stats.highest_version.value());
  }
  std::printf("%-10s %-22s %10s %10s\n", "worker", "state", "pid", "step");
  for (const WorkerStatus& worker : status.workers) {
    const char* state = worker.has_left       ? "done"
                        : worker.is_member    ? "member"
                        : worker.is_alive     ? "joining"
                        : worker.was_released ? "released"
                                              : "gone";
    std::printf("%-10s %-22s %10lu %10lu\n",
                ToString(worker.worker).c_str(),
                state,
                worker.pid,
                worker.step.value());
  }
}

absl::Status ShowStatus(const StatusFlags& flags) {
  PUSHPULL_ASSIGN_OR_RETURN(const FoundCoordinator coordinator, FindCoordinator(flags.job));
  Mutex mu;
  CondVar never;
  while (true) {
    PUSHPULL_ASSIGN_OR_RETURN(
        const JobStatus status,
        AwaitCoordinator(coordinator, std::chrono::seconds(flags.timeout_seconds)));
    if (flags.is_json) {
      std::printf("%s\n", ToJson(status).dump(2).c_str());
    } else {
      PrintTable(status);
    }
    std::fflush(stdout);
    if (!flags.is_watching || status.phase == JobPhase::kFailed ||
        status.phase == JobPhase::kSucceeded) {
      return absl::OkStatus();
    }
    MutexLock lock(mu);
    never.WaitUntil(mu, Deadline::After(kWatchPeriod));
  }
}

}  // namespace

void AddStatusCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("status", "Show the members and the progress of a running job");
  const auto flags = std::make_shared<StatusFlags>();
  AddJobFlags(*command, flags->job);
  command->add_flag("--json", flags->is_json, "As JSON");
  command
      ->add_option("--timeout",
                   flags->timeout_seconds,
                   "Seconds to wait for a new coordinator that collects its members")
      ->capture_default_str();
  command->add_flag("--watch", flags->is_watching, "Again every second until the job ends");
  command->callback([flags, &exit_code] { exit_code = Report(ShowStatus(*flags)); });
}

}  // namespace pushpull
