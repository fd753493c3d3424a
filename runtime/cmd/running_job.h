// SPDX-License-Identifier: Apache-2.0
//
// The running job that a command is about: which one, and waiting until it is as was asked.
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

// How long a coordinator may take for an answer.
inline constexpr Duration kAnswerTimeout = std::chrono::seconds(5);

struct JobFlags {
  std::string workdir;
  std::string coordinator;
};

// Blocks for so long. SIGINT and SIGTERM end the command, with 130 and 143: what it waits for goes
// on without it.
void Pause(Duration duration);

// --workdir and --coordinator. `flags` must outlive the command's callback.
void AddJobFlags(CLI::App& command, JobFlags& flags);

// A coordinator and what to show it.
struct FoundCoordinator {
  std::string address;             // host:port
  std::shared_ptr<TlsFolder> tls;  // null: no TLS

  // For one call. Looks at the certificates again, for a command may wait for long.
  ControlTarget Target() const;
};

// --coordinator as it is; otherwise that of the `pushpull run` in --workdir; with neither, of the
// one job that runs in .pushpull. The certificates are those of PUSHPULL_TLS_DIR, where it is set.
// kNotFound: no job runs there, or several do and one must be chosen; kDataLoss: the workdir's list
// names no coordinator; and the errors of TlsFolder::Open.
absl::StatusOr<FoundCoordinator> FindCoordinator(const JobFlags& flags);

// kFailedPrecondition where the job is that of the pod in which the command runs: there the
// manifest has the last word, and `instead` says, given the job's name, what to do.
absl::Status CheckIsNotUnderKubernetes(
    const JobFlags& flags, const std::function<std::string(const std::string&)>& instead);

struct WaitFlags {
  bool is_waiting = false;
  uint32_t timeout_seconds = 600;
};

// --wait, described as `until`, and --timeout. `flags` must outlive the command's callback.
void AddWaitFlags(CLI::App& command, const std::string& until, WaitFlags& flags);

// Blocks while the coordinator is new and still collects its members: it knows too little of the
// job to answer or to change it. Returns the first status that it gives as one that knows, or,
// after `timeout`, the last. Errors of FetchStatus.
absl::StatusOr<JobStatus> AwaitCoordinator(const FoundCoordinator& coordinator, Duration timeout);
// The same for a command that needs one. kUnavailable: not within --timeout.
absl::Status AwaitCoordinator(const FoundCoordinator& coordinator, const WaitFlags& flags);

// What the job still lacks; empty: nothing. An error ends the wait.
using Look = std::function<absl::StatusOr<std::string>(const JobStatus&)>;

// Blocks until `look` finds nothing lacking, and through a change of the coordinator, whose end of
// the job it waits for. `ongoing` is what goes on without this command. kDeadlineExceeded: not
// within
// --timeout; and the errors of FetchStatus and `look`.
absl::Status AwaitJob(const FoundCoordinator& coordinator,
                      const WaitFlags& flags,
                      const std::string& ongoing,
                      const Look& look);

}  // namespace pushpull
