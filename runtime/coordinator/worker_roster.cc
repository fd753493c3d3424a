// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/worker_roster.h"

namespace pushpull {

void WorkerRoster::OnLeft(WorkerId worker, bool is_released) {
  Entry& entry = entries_[worker];
  entry.was_released = is_released;
  entry.has_left = !is_released;
}

void WorkerRoster::OnGone(WorkerId worker) {
  const auto it = entries_.find(worker);
  if (it != entries_.end()) it->second.is_alive = false;
}

bool WorkerRoster::IsComplete(uint32_t desired) const {
  for (uint32_t i = 0; i < desired; ++i) {
    const auto entry = entries_.find(WorkerId{i});
    if (entry == entries_.end() || !entry->second.has_left) return false;
  }
  return desired > 0;
}

}  // namespace pushpull
