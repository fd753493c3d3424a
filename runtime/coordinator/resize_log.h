// SPDX-License-Identifier: Apache-2.0
//
// Measures each change of the number of servers: how long it took, how many bytes it moved, how
// long workers waited. Pure.
#pragma once

#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/quantiles.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Thread-compatible. Bounded: the newest JobStatus::kResizesMax changes.
class ResizeLog {
 public:
  // The members' statistics since the job's start.
  struct Totals {
    Quantiles sync_seconds;
    uint64_t bytes_copied = 0;
  };

  // A member's statistics are at most `report_period` old, so that those of a change are complete
  // that much after it has settled.
  explicit ResizeLog(Duration report_period) : report_period_(report_period) {}

  // Closes the resize under way.
  void Begin(SteadyTime now, ResizeStatus resize, Totals totals);
  // To be called often while is_open(). `is_settled`: the servers are present and nothing moves.
  void Update(SteadyTime now, bool is_settled, const Totals& totals);

  // The last one's numbers may still change.
  bool is_open() const { return !resizes_.empty() && !resizes_.back().is_final; }
  const std::vector<ResizeStatus>& resizes() const { return resizes_; }

 private:
  const Duration report_period_;
  std::vector<ResizeStatus> resizes_;
  SteadyTime began_at_;
  SteadyTime settled_at_;
  Totals before_;
};

}  // namespace pushpull
