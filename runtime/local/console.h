// SPDX-License-Identifier: Apache-2.0
//
// What `pushpull run` prints to standard error while the job runs: lines, and a progress line that
// is redrawn in place on a terminal or repeated every few seconds elsewhere.
#pragma once

#include <string>

#include "pushpull/deadline.h"

#include "runtime/membership/job_status.h"

namespace pushpull {

// "step 1200 | loss 0.4312 | 25310 samples/s | sync 1.9 ms | 2 servers | 2 workers"; `before` is an
// earlier status, from which the current speed is computed.
std::string FormatProgress(const JobStatus& status, const JobStatus& before);

// Thread-compatible.
class Console {
 public:
  explicit Console(bool shows_progress);

  void Print(const std::string& line);
  // Prints the line only if progress is shown.
  void PrintProgress(const std::string& line);
  // Draws the progress line, if it is due.
  void ShowStatus(SteadyTime now, const JobStatus& status);
  void ClearProgressLine();

 private:
  const bool shows_progress_;
  const bool is_terminal_;
  bool has_progress_line_ = false;
  JobStatus last_shown_;  // to compute the current speed
  SteadyTime shown_at_;
};

}  // namespace pushpull
