// SPDX-License-Identifier: Apache-2.0
//
// The processes of the ranks of a benchmark, as children.
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

// Calls from one thread. When one process fails, the others get a moment to notice, then are ended.
class RankProcesses {
 public:
  RankProcesses() : loop_("pp-bench") {}
  // Kills those that still run.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Starts one more, under a name for messages; the command's first word is the path of the
  // program. Blocks until it has begun.
  absl::Status Start(const std::string& name,
                     const std::vector<std::string>& command,
                     const std::map<std::string, std::string>& environment)
      ABSL_LOCKS_EXCLUDED(mu_);

  bool has_failed() ABSL_LOCKS_EXCLUDED(mu_);

  // Blocks until all have ended. kInternal: one has failed, with what it said last.
  absl::Status WaitForEnd(Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits a moment for all to end, and returns why one has failed; `otherwise` where none has.
  absl::Status Explain(const absl::Status& otherwise) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void EndAll() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Failure() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  CondVar changed_;
  size_t num_running_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;  // what ends now has not failed by itself
  std::optional<absl::Status> started_ ABSL_GUARDED_BY(mu_);  // the last one; none: not yet
  // The last line of each one that has failed, in the order in which they ended.
  std::vector<std::string> failures_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> last_lines_ ABSL_GUARDED_BY(mu_);  // by name
  std::vector<std::unique_ptr<ChildProcess>> processes_;                // confined to the loop
  EventLoop loop_;
};

}  // namespace pushpull
