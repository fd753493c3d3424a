// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd/running_job.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"

#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status_macros.h"
#include "runtime/cmd/environment.h"
#include "runtime/local/workdir.h"
#include "runtime/membership/status_client.h"

namespace pushpull {
namespace {

constexpr Duration kLookPeriod = std::chrono::milliseconds(100);

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

void AddJobFlags(CLI::App& command, JobFlags& flags) {
  auto* workdir = command.add_option(
      "--workdir", flags.workdir, "Of the `pushpull run`; default: the one job in .pushpull");
  command.add_option("--coordinator", flags.coordinator, "host:port of the coordinator")
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
  CLI::Option* wait = command.add_flag("--wait", flags.is_waiting, until);
  command.add_option("--timeout", flags.timeout_seconds, "Seconds that --wait waits")
      ->needs(wait)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

absl::Status AwaitJob(const FoundCoordinator& coordinator,
                      const WaitFlags& flags,
                      const std::string& ongoing,
                      const Look& look) {
  const Deadline deadline = Deadline::After(std::chrono::seconds(flags.timeout_seconds));
  Mutex mu;
  CondVar never;
  while (true) {
    PUSHPULL_ASSIGN_OR_RETURN(const JobStatus status,
                              FetchStatus(coordinator.Target(), Deadline::After(kAnswerTimeout)));
    PUSHPULL_ASSIGN_OR_RETURN(const std::string lacking, look(status));
    if (lacking.empty()) return absl::OkStatus();
    if (deadline.has_passed()) {
      constexpr absl::string_view kText = "job $0: $1 after $2 s (--timeout); the $3 goes on";
      return absl::DeadlineExceededError(
          absl::Substitute(kText, status.job, lacking, flags.timeout_seconds, ongoing));
    }
    MutexLock lock(mu);
    never.WaitUntil(mu, Deadline::After(kLookPeriod));
  }
}

}  // namespace pushpull
