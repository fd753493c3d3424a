// SPDX-License-Identifier: Apache-2.0
//
// The processes of a benchmark's ranks, as child processes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pushpull/deadline.h"

#include "runtime/base/event_loop.h"
#include "runtime/base/mutex.h"
#include "runtime/local/process.h"

namespace pushpull {

// Called from one thread. When one process fails, the others get a moment to notice, then are
// killed.
class RankProcesses {
 public:
  RankProcesses() : loop_("pp-bench") {}
  // Kills those that are still running.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Starts another one, with a name for messages; the command's first word is the path of the
  // program. Blocks until it has begun.
  absl::Status Start(const std::string& name,
                     const std::vector<std::string>& command,
                     const std::map<std::string, std::string>& environment)
      ABSL_LOCKS_EXCLUDED(mu_);

  bool has_failed() ABSL_LOCKS_EXCLUDED(mu_);

  // Blocks until all have ended. kInternal: some have failed; the text has their last lines.
  absl::Status WaitForEnd(Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits a moment for all to end, and returns why one has failed, or `otherwise` if none has.
  absl::Status Explain(const absl::Status& otherwise) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void EndAll() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Failure() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  CondVar changed_;
  size_t num_running_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;               // ends from now on are no failures
  std::optional<absl::Status> started_ ABSL_GUARDED_BY(mu_);  // the last start; none: not yet
  // The last line of each failed process, in the order in which they ended.
  std::vector<std::string> failures_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> last_lines_ ABSL_GUARDED_BY(mu_);  // by name
  std::vector<std::unique_ptr<ChildProcess>> processes_;                // confined to the loop
  EventLoop loop_;
};

}  // namespace pushpull
