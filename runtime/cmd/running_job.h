// SPDX-License-Identifier: Apache-2.0
//
// The running job that a command is about: finds it, and waits until it is as requested.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <CLI/App.hpp>

#include "pushpull/deadline.h"

#include "runtime/membership/control_client.h"
#include "runtime/membership/job_status.h"
#include "runtime/tls/tls_folder.h"

namespace pushpull {

// How long a coordinator may take to answer.
inline constexpr Duration kAnswerTimeout = std::chrono::seconds(5);

struct JobFlags {
  std::string workdir;
  std::string coordinator;
};

// Blocks for `duration`. SIGINT and SIGTERM end the command, with 130 and 143: what it waits for
// continues without it.
void Pause(Duration duration);

// --workdir and --coordinator. `flags` must outlive the command's callback.
void AddJobFlags(CLI::App& command, JobFlags& flags);

// A coordinator's address and the certificates for calling it.
struct FoundCoordinator {
  std::string address;             // host:port
  std::shared_ptr<TlsFolder> tls;  // null: no TLS

  // For one call. Reloads the certificates, because a command may wait for a long time.
  ControlTarget Target() const;
};

// --coordinator as given; otherwise that of the `pushpull run` in --workdir; with neither, that of
// the one job that runs in .pushpull. The certificates are those of PUSHPULL_TLS_DIR, if it is set.
// kNotFound: no job runs there, or several do and one must be chosen; kDataLoss: the workdir's list
// names no coordinator; and the errors of TlsFolder::Open.
absl::StatusOr<FoundCoordinator> FindCoordinator(const JobFlags& flags);

// kFailedPrecondition if the job is that of the pod in which the command runs: there the manifest
// decides, and `instead` says, given the job's name, what to do.
absl::Status CheckIsNotUnderKubernetes(
    const JobFlags& flags, const std::function<std::string(const std::string&)>& instead);

struct WaitFlags {
  bool is_waiting = false;
  uint32_t timeout_seconds = 600;
};

// --wait, described as `until`, and --timeout. `flags` must outlive the command's callback.
void AddWaitFlags(CLI::App& command, const std::string& until, WaitFlags& flags);

// Blocks while a new coordinator is still collecting its members' state: it knows too little of the
// job to answer or to change it. Returns its first status after that or, after `timeout`, the last
// one. Errors of FetchStatus.
absl::StatusOr<JobStatus> AwaitCoordinator(const FoundCoordinator& coordinator, Duration timeout);
// The same for a command that needs a coordinator that knows the job. kUnavailable: not within
// --timeout.
absl::Status AwaitCoordinator(const FoundCoordinator& coordinator, const WaitFlags& flags);

// What the job still lacks; empty if nothing. An error ends the wait.
using Look = std::function<absl::StatusOr<std::string>(const JobStatus&)>;

// Blocks until `look` finds nothing lacking, even across a restart of the coordinator, and lets
// that wait for this command at the job's end. `ongoing` names what continues without this command.
// kDeadlineExceeded: not within `flags.timeout_seconds`; and the errors of FetchStatus and `look`.
absl::Status AwaitJob(const FoundCoordinator& coordinator,
                      const WaitFlags& flags,
                      const std::string& ongoing,
                      const Look& look);

}  // namespace pushpull
