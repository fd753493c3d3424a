// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd/running_job.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"

#include "runtime/base/log.h"
#include "runtime/base/signals.h"
#include "runtime/base/status_macros.h"
#include "runtime/cmd/address_flag.h"
#include "runtime/cmd/environment.h"
#include "runtime/local/workdir.h"
#include "runtime/membership/status_client.h"

namespace pushpull {
namespace {

constexpr Duration kLookPeriod = std::chrono::milliseconds(100);
// A coordinator that has died is back within this time: it is restarted after 5 s at most.
constexpr Duration kSuccessorTime = std::chrono::seconds(15);

// Not 0, which does not wait.
uint64_t RandomWaiter() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random() | 1;
}

// The coordinator's control address from the launcher's list of endpoints.
absl::StatusOr<std::string> CoordinatorOf(const std::string& workdir) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<Endpoint> endpoints, ReadEndpoints(workdir));
  const auto found = std::ranges::find(endpoints, "coordinator", &Endpoint::role);
  if (found != endpoints.end()) return found->control;
  return absl::NotFoundError(absl::StrCat(
      workdir,
      "/endpoints.json: the coordinator is not there at the moment; steps go on without it, and "
      "`pushpull run` starts it again by spec.restart: ask again"));
}

// The workdir of the one job that runs from this folder.
absl::StatusOr<std::string> OnlyWorkdir() {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(".pushpull", error)) {
    if (std::filesystem::exists(entry.path() / "endpoints.json", error))
      found.push_back(entry.path().string());
  }
  if (found.size() == 1) return found.front();
  return absl::NotFoundError(
      found.empty() ? "no job runs in .pushpull here; name it with --workdir or --coordinator"
                    : absl::StrCat("several jobs run here; choose with --workdir: ",
                                   absl::StrJoin(found, ", ")));
}

absl::StatusOr<std::string> FindAddress(const JobFlags& flags) {
  if (!flags.coordinator.empty()) return flags.coordinator;
  if (!flags.workdir.empty()) return CoordinatorOf(flags.workdir);
  PUSHPULL_ASSIGN_OR_RETURN(const std::string only, OnlyWorkdir());
  return CoordinatorOf(only);
}

}  // namespace

void Pause(Duration duration) {
  const int signal = AwaitStopSignal(duration);
  if (signal == 0) return;
  std::fflush(stdout);
  std::_Exit(ExitCodeOf(signal));  // there is nothing to shut down in order
}

void AddJobFlags(CLI::App& command, JobFlags& flags) {
  auto* workdir = command.add_option(
      "--workdir", flags.workdir, "Of the `pushpull run`; default: the one job in .pushpull");
  command.add_option("--coordinator", flags.coordinator, "host:port of the coordinator")
      ->check(&WhyNoAddress)
      ->excludes(workdir);
}

ControlTarget FoundCoordinator::Target() const {
  if (tls != nullptr) tls->Reload();
  return {.address = address, .tls = CurrentIdentity(tls.get())};
}

absl::StatusOr<FoundCoordinator> FindCoordinator(const JobFlags& flags) {
  PUSHPULL_ASSIGN_OR_RETURN(std::string address, FindAddress(flags));
  PUSHPULL_ASSIGN_OR_RETURN(
      std::shared_ptr<TlsFolder> tls,
      OpenTlsFolder(Environment()[kTlsFolderVariable], Log("pushpull", LogLevel::kWarning)));
  return FoundCoordinator{.address = std::move(address), .tls = std::move(tls)};
}

absl::Status CheckIsNotUnderKubernetes(
    const JobFlags& flags, const std::function<std::string(const std::string&)>& instead) {
  std::map<std::string, std::string> environment = Environment();
  const std::string coordinator = environment["PUSHPULL_COORDINATOR"];
  const bool is_of_pod =
      flags.workdir.empty() && (flags.coordinator.empty() || flags.coordinator == coordinator);
  if (environment["KUBERNETES_SERVICE_HOST"].empty() || coordinator.empty() || !is_of_pod)
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this job runs under Kubernetes: ", instead(environment["PUSHPULL_JOB"])));
}

void AddWaitFlags(CLI::App& command, const std::string& until, WaitFlags& flags) {
  command.add_flag("--wait", flags.is_waiting, until);
  command
      .add_option("--timeout",
                  flags.timeout_seconds,
                  "Seconds to wait for a new coordinator that collects its members, and for --wait")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

absl::StatusOr<JobStatus> AwaitCoordinator(const FoundCoordinator& coordinator, Duration timeout) {
  const Deadline deadline = Deadline::After(timeout);
  while (true) {
    PUSHPULL_ASSIGN_OR_RETURN(JobStatus status,
                              FetchStatus(coordinator.Target(), Deadline::After(kAnswerTimeout)));
    if (status.phase != JobPhase::kRecovering || deadline.has_passed()) return status;
    Pause(kLookPeriod);
  }
}

absl::Status AwaitCoordinator(const FoundCoordinator& coordinator, const WaitFlags& flags) {
  PUSHPULL_ASSIGN_OR_RETURN(
      const JobStatus status,
      AwaitCoordinator(coordinator, std::chrono::seconds(flags.timeout_seconds)));
  if (status.phase != JobPhase::kRecovering) return absl::OkStatus();
  constexpr absl::string_view kText =
      "job $0: its new coordinator is still collecting its members after $1 s (--timeout)";
  return absl::UnavailableError(absl::Substitute(kText, status.job, flags.timeout_seconds));
}

absl::Status AwaitJob(const FoundCoordinator& coordinator,
                      const WaitFlags& flags,
                      const std::string& ongoing,
                      const Look& look) {
  const Deadline deadline = Deadline::After(std::chrono::seconds(flags.timeout_seconds));
  const uint64_t waiter = RandomWaiter();
  Deadline back = Deadline::After(kSuccessorTime);
  while (true) {
    const absl::StatusOr<JobStatus> status =
        FetchStatusAgain(coordinator.Target(), waiter, Deadline::After(kAnswerTimeout));
    if (status.ok()) back = Deadline::After(kSuccessorTime);
    const bool may_return = absl::IsUnavailable(status.status()) && !back.has_passed();
    if (!status.ok() && !may_return) return status.status();
    std::string lacking = "its coordinator is away";
    if (status.ok()) {
      lacking = "its new coordinator is still collecting its members";
      if (status->phase != JobPhase::kRecovering) {
        PUSHPULL_ASSIGN_OR_RETURN(lacking, look(*status));
      }
    }
    if (lacking.empty()) return absl::OkStatus();
    if (deadline.has_passed()) {
      constexpr absl::string_view kText = "job$0: $1 after $2 s (--timeout); the $3 goes on";
      const std::string job = status.ok() ? absl::StrCat(" ", status->job) : "";
      return absl::DeadlineExceededError(
          absl::Substitute(kText, job, lacking, flags.timeout_seconds, ongoing));
    }
    Pause(kLookPeriod);
  }
}

}  // namespace pushpull
