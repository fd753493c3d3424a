// SPDX-License-Identifier: Apache-2.0
//
// `pushpull scale`.
#include <cstdio>
#include <memory>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"

#include "runtime/base/exit_codes.h"
#include "runtime/base/status_macros.h"
#include "runtime/cmd/commands.h"
#include "runtime/cmd/running_job.h"
#include "runtime/membership/status_client.h"

namespace pushpull {
namespace {

struct ScaleFlags {
  JobSize size;
  JobFlags job;
  WaitFlags wait;
};

// The scale subresource scales the servers; the number of workers is an ordinary field.
std::string KubectlFor(const std::string& job, const JobSize& size) {
  std::vector<std::string> commands;
  if (size.servers)
    commands.push_back(
        absl::StrCat("kubectl scale trainingjob/", job, " --replicas=", *size.servers));
  if (size.workers) {
    constexpr absl::string_view kPatch =
        "kubectl patch trainingjob/$0 --type=merge -p '{\"spec\":{\"workers\":{\"replicas\":$1}}}'";
    commands.push_back(absl::Substitute(kPatch, job, *size.workers));
  }
  return absl::StrJoin(commands, " && ");
}

bool IsTakingPart(const WorkerStatus& worker) {
  return worker.is_alive && worker.is_member;
}

// Every desired worker contributes, has finished or is left out, and there are no others.
bool HasWorkers(const JobStatus& status) {
  const auto is_due = [&](const WorkerStatus& worker) {
    return worker.worker.value() < status.desired_workers;
  };
  const bool has_surplus = absl::c_any_of(
      status.workers, [&](const auto& worker) { return !is_due(worker) && worker.is_alive; });
  const auto there = absl::c_count_if(status.workers, [&](const auto& worker) {
    const bool is_over = worker.has_left || !worker.left_out.empty();
    return is_due(worker) && (is_over || IsTakingPart(worker));
  });
  return !has_surplus && static_cast<uint32_t>(there) == status.desired_workers;
}

// Servers 0 to desired - 1 and no others are there, each shard is where it should be, and the
// resize is reported in full.
bool HasServers(const JobStatus& status) {
  const bool has_surplus = absl::c_any_of(status.servers, [&](const auto& server) {
    return server.server.value() >= status.desired_servers;
  });
  const bool is_accounted_for = status.resizes.empty() || status.resizes.back().is_final;
  return status.shards_moving == 0 && !has_surplus && is_accounted_for &&
         status.servers.size() == status.desired_servers;
}

absl::Status CheckIsUnderWay(const JobStatus& status, const JobSize& size) {
  if (status.phase == JobPhase::kFailed)
    return absl::AbortedError(absl::StrCat("job ", status.job, " failed: ", status.failure));
  if (status.desired_servers != size.servers.value_or(status.desired_servers) ||
      status.desired_workers != size.workers.value_or(status.desired_workers)) {
    return absl::AbortedError(
        absl::Substitute("job $0 was resized to $1 servers and $2 workers meanwhile",
                         status.job,
                         status.desired_servers,
                         status.desired_workers));
  }
  return absl::OkStatus();
}

std::string Describe(const JobStatus& status, const JobSize& size) {
  std::vector<std::string> texts;
  if (size.servers) {
    texts.push_back(absl::Substitute("$0 servers of $1, $2 shards to move",
                                     status.servers.size(),
                                     *size.servers,
                                     status.shards_moving));
  }
  if (size.workers) {
    const auto members = absl::c_count_if(status.workers, IsTakingPart);
    texts.push_back(absl::StrCat(members, " workers of ", *size.workers));
  }
  return absl::StrJoin(texts, ", ");
}

absl::Status AwaitSize(const FoundCoordinator& coordinator, const ScaleFlags& flags) {
  std::string shown;
  return AwaitJob(coordinator,
                  flags.wait,
                  "resize",
                  [&](const JobStatus& status) -> absl::StatusOr<std::string> {
                    if (status.phase == JobPhase::kSucceeded) {
                      std::printf("job %s has succeeded meanwhile\n", status.job.c_str());
                      return "";
                    }
                    PUSHPULL_RETURN_IF_ERROR(CheckIsUnderWay(status, flags.size));
                    const std::string progress = Describe(status, flags.size);
                    if (progress != shown)
                      std::printf("%s, step %lu\n", progress.c_str(), status.step.value());
                    std::fflush(stdout);
                    shown = progress;
                    const bool is_reached = (!flags.size.servers || HasServers(status)) &&
                                            (!flags.size.workers || HasWorkers(status));
                    return is_reached ? "" : progress;
                  });
}

absl::Status Scale(const ScaleFlags& flags) {
  if (flags.size == JobSize{}) {
    return absl::InvalidArgumentError("say how many: --servers N, --workers N or both");
  }
  PUSHPULL_RETURN_IF_ERROR(CheckIsNotUnderKubernetes(flags.job, [&](const std::string& job) {
    return absl::StrCat("use `", KubectlFor(job, flags.size), "`");
  }));
  PUSHPULL_ASSIGN_OR_RETURN(const FoundCoordinator coordinator, FindCoordinator(flags.job));
  PUSHPULL_RETURN_IF_ERROR(AwaitCoordinator(coordinator, flags.wait));
  PUSHPULL_RETURN_IF_ERROR(
      RequestResize(coordinator.Target(), flags.size, Deadline::After(kAnswerTimeout)));
  return flags.wait.is_waiting ? AwaitSize(coordinator, flags) : absl::OkStatus();
}

}  // namespace

void AddScaleCommand(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("scale", "Change how many servers and workers a running job has");
  const auto flags = std::make_shared<ScaleFlags>();
  command->add_option("--servers", flags->size.servers, "How many servers the job shall have")
      ->check(CLI::Range(1, 1024));
  command->add_option("--workers", flags->size.workers, "How many workers the job shall have")
      ->check(CLI::Range(1, 4096));
  AddJobFlags(*command, flags->job);
  AddWaitFlags(*command, "Return when they are there and nothing moves any more", flags->wait);
  command->callback([flags, &exit_code] { exit_code = Report(Scale(*flags)); });
}

}  // namespace pushpull
