// SPDX-License-Identifier: Apache-2.0
//
// What became of each change of the number of servers: how long it took, what it moved, how long
// the workers waited. Pure.
#pragma once

#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/quantiles.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Thread-compatible. Bounded: the newest JobStatus::kResizesMax changes.
class ResizeLog {
 public:
  // What the members have said so far, since the job's start.
  struct Totals {
    Quantiles sync_seconds;
    uint64_t bytes_copied = 0;
  };

  // A member's word is at most `report_period` old, so that the last of a change comes that much
  // later.
  explicit ResizeLog(Duration report_period) : report_period_(report_period) {}

  // Ends what is under way.
  void Begin(SteadyTime now, ResizeStatus resize, Totals totals);
  // To be called often while is_open(). `is_settled`: the servers are there and nothing moves.
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
