// SPDX-License-Identifier: Apache-2.0
//
// What became of each worker index across its processes: alive, done with its part of the job, or
// released by a smaller desired size. A released index that is desired again is started again.
// Pure.
#pragma once

#include <cstdint>
#include <map>

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"

namespace pushpull {

// Thread-compatible.
class WorkerRoster {
 public:
  struct Entry {
    RegisterWorker info;  // of its latest process
    bool is_alive = false;
    bool has_left = false;      // it has done its part of the job
    bool was_released = false;  // it left because it was told to
  };

  void OnRegistered(const RegisterWorker& info) {
    entries_[info.worker] = {.info = info, .is_alive = true};
  }
  // It leaves in order; `is_released`: because it was told to.
  void OnLeft(WorkerId worker, bool is_released) {
    Entry& entry = entries_[worker];
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

  const std::map<WorkerId, Entry>& entries() const { return entries_; }

 private:
  std::map<WorkerId, Entry> entries_;
};

}  // namespace pushpull
