// SPDX-License-Identifier: Apache-2.0
//
// What `pushpull run --report` writes and what it prints at the end (docs/interfaces.md section 2).
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"

#include "runtime/membership/job_status.h"
#include "runtime/status/status_history.h"

namespace pushpull {

struct RunOutcome {
  JobStatus status;  // the last one received
  bool has_succeeded = false;
  bool was_stopped = false;  // by a signal
  double seconds = 0;        // of the whole run, including the start of the processes
  int restarts = 0;
  std::string failure;                            // empty if the job succeeded
  std::map<WorkerId, std::string> left_out = {};  // workers, and why
  // Of the whole run, including restarts of the job.
  StatusHistory history{StatusHistory::Keeps::kAll};
};

// JSON with every key of docs/interfaces.md section 2. `pause_seconds` of a resize is the longest
// synchronisation of a step, from its first gradient to its last parameter, that any worker saw
// between the request and the time when every shard was in place; `settled` and `seconds` say
// whether and when that was reached.
std::string FormatReport(const RunOutcome& outcome);

// A few lines for a person.
std::string FormatSummary(const RunOutcome& outcome, const std::string& log_folder);

// Prints the summary to standard error and writes the report, unless `report_path` is empty. An
// error is also printed.
absl::Status ReportOutcome(const RunOutcome& outcome,
                           const std::string& log_folder,
                           const std::string& report_path);

}  // namespace pushpull
