// SPDX-License-Identifier: Apache-2.0
//
// What became of each worker index across its processes: alive, done with its part of the job, or
// released by a smaller desired size. A released index that is desired again is started again.
// Pure.
#pragma once

#include <cstdint>
#include <map>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Thread-compatible.
class WorkerRoster {
 public:
  void OnRegistered(const RegisterWorker& info, SteadyTime now) {
    joined_at_[info.worker] = now;
    entries_[info.worker] = {.worker = info.worker,
                             .is_alive = true,
                             .metrics_address = info.metrics_address,
                             .pid = info.pid};
  }
  // It leaves in order; `is_released`: because it was told to.
  void OnLeft(WorkerId worker, bool is_released) {
    WorkerStatus& entry = entries_[worker];
    entry.worker = worker;
    entry.was_released = is_released;
    entry.has_left = !is_released;
  }
  void OnGone(WorkerId worker) {
    const auto it = entries_.find(worker);
    if (it != entries_.end()) it->second.is_alive = false;
  }

  // The workers 0 to `desired` - 1 have done their part.
  bool IsComplete(uint32_t desired) const {
    for (uint32_t i = 0; i < desired; ++i) {
      const auto entry = entries_.find(WorkerId{i});
      if (entry == entries_.end() || !entry->second.has_left) return false;
    }
    return desired > 0;
  }

  // Of the latest process of each; without its place in the view and its step.
  const std::map<WorkerId, WorkerStatus>& entries() const { return entries_; }
  // Since its latest process registered.
  Duration JoinedAgo(WorkerId worker, SteadyTime now) const {
    const auto it = joined_at_.find(worker);
    return it == joined_at_.end() ? Duration::zero() : now - it->second;
  }

 private:
  std::map<WorkerId, WorkerStatus> entries_;
  std::map<WorkerId, SteadyTime> joined_at_;
};

}  // namespace pushpull
