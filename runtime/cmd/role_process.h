// SPDX-License-Identifier: Apache-2.0
//
// What the server and the coordinator process have in common: a loop for control, stop signals, and
// the wait for the end.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/event_loop.h"
#include "runtime/base/mutex.h"
#include "runtime/base/signals.h"

namespace pushpull {

// How long SIGTERM leaves a role that has something to hand over or to save.
inline constexpr double kLeaveSeconds = 25;
inline constexpr char kLeaveVariable[] = "PUSHPULL_LEAVE_SECONDS";

// Where a role listens: host:port; empty if the role has no such address.
struct RoleAddresses {
  std::string control;
  std::string data;
  std::string metrics;
};

// Tells the launcher that the role listens: writes one line of JSON to `fd`,
// {"control":...,"data":...,"metrics":...}, and closes it. A negative fd means that nobody waits.
// It is no error if the launcher is gone: its guardian ends this process.
void ReportReady(int fd, const RoleAddresses& addresses);

// Like Report, for a role's command; also writes a termination message that wrong usage is final.
int ReportRole(const absl::StatusOr<int>& exit_code);

// Thread-safe.
class RoleProcess {
 public:
  // `loop_name` has at most 15 characters.
  explicit RoleProcess(const std::string& loop_name);

  EventLoop& control() { return control_; }

  // Runs `task` on the control loop and waits for its result.
  absl::Status Call(const std::function<absl::Status()>& task);

  // Ends the process; the first call counts.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  // From now on the first SIGTERM is a warning: it calls `leave` on the control loop, and the
  // process ends when End is called or `grace` is over. Another signal ends it at once.
  void LeaveOnWarning(Duration grace, std::function<void()> leave) ABSL_LOCKS_EXCLUDED(mu_);

  // Blocks until End or a stop signal. Returns the exit code; errors are printed. Waiting for the
  // end of a job has no deadline of its own: the coordinator's silence, a signal or the job's end
  // terminates it.
  int WaitForEnd() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the launcher takes the job down, after WaitForEnd.
  bool is_urgent() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void OnSignal(StopSignal signal) ABSL_LOCKS_EXCLUDED(mu_);
  // Ended, or the grace period is over.
  bool is_over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  CondVar changed_;
  bool is_urgent_ ABSL_GUARDED_BY(mu_) = false;  // the signal that ended it
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mu_);
  int signal_ ABSL_GUARDED_BY(mu_) = 0;
  std::function<void()> leave_ ABSL_GUARDED_BY(mu_);  // empty once called
  Duration grace_ ABSL_GUARDED_BY(mu_){0};
  std::optional<Deadline> leaves_until_ ABSL_GUARDED_BY(mu_);
  EventLoop control_;
  StopSignals signals_;
};

}  // namespace pushpull
