// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/worker_roster.h"

#include <algorithm>

namespace pushpull {

void WorkerRoster::OnRegistered(const RegisterWorker& info) {
  entries_[info.worker] = {.info = info, .is_alive = true};
}

void WorkerRoster::OnLeft(WorkerId worker, bool is_released) {
  Entry& entry = entries_[worker];
  entry.was_released = is_released;
  entry.has_left = !is_released;
}

void WorkerRoster::OnGone(WorkerId worker) {
  const auto it = entries_.find(worker);
  if (it != entries_.end()) it->second.is_alive = false;
}

bool WorkerRoster::IsComplete() const {
  const auto done = std::count_if(entries_.begin(), entries_.end(), [this](const auto& entry) {
    return entry.second.has_left && IsWanted(entry.first);
  });
  return static_cast<uint32_t>(done) == wanted_;
}

}  // namespace pushpull
