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

// Where a role listens: host:port; empty where the role has none of the kind.
struct RoleAddresses {
  std::string control;
  std::string data;
  std::string metrics;
};

// Tells the launcher that the role listens: writes one line of JSON to `fd`,
// {"control":...,"data":...,"metrics":...}, and closes it. A negative fd means that nobody waits.
// The launcher being gone is no error: its guardian ends this process.
void ReportReady(int fd, const RoleAddresses& addresses);

// As Report, of a role's command; wrong usage is said to be final to whoever watches the process.
int ReportRole(const absl::StatusOr<int>& exit_code);

// Thread-safe.
class RoleProcess {
 public:
  // `loop_name` has at most 15 characters.
  explicit RoleProcess(const std::string& loop_name);

  EventLoop& control() { return control_; }

  // Runs `task` on the control loop and waits for its result.
  absl::Status Call(const std::function<absl::Status()>& task);

  // The process is to end; the first call counts.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  // From now on a SIGTERM is a warning: the first calls `leave` on the control loop, and the
  // process ends when End is called, and otherwise when `grace` is over. Another signal ends it at
  // once.
  void LeaveOnWarning(Duration grace, std::function<void()> leave) ABSL_LOCKS_EXCLUDED(mu_);

  // Blocks until End or a stop signal. Returns the exit code; errors are printed. Waiting for the
  // end of a job has no deadline of its own: the coordinator's silence, a signal or the job's end
  // finish it.
  int WaitForEnd() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void OnSignal(StopSignal signal) ABSL_LOCKS_EXCLUDED(mu_);
  // Ended, or has had its time.
  bool is_over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  CondVar changed_;
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mu_);
  int signal_ ABSL_GUARDED_BY(mu_) = 0;
  std::function<void()> leave_ ABSL_GUARDED_BY(mu_);  // empty once called
  Duration grace_ ABSL_GUARDED_BY(mu_){0};
  std::optional<Deadline> leaves_until_ ABSL_GUARDED_BY(mu_);
  EventLoop control_;
  StopSignals signals_;
};

}  // namespace pushpull
