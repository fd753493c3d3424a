// SPDX-License-Identifier: Apache-2.0
//
// The state of each worker index across its processes: alive, done with its part of the job, or
// released by a smaller desired size. A released index that is desired again is started again.
// Pure.
#pragma once

#include <cstdint>
#include <map>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/job/restart_policy.h"
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
                             .pid = info.pid,
                             .rack = info.rack};
  }
  // The worker leaves in an orderly way; `is_released`: because it was told to.
  void OnLeft(WorkerId worker, bool is_released) {
    WorkerStatus& entry = entries_[worker];
    entry.worker = worker;
    entry.was_released = is_released;
    entry.has_left = !is_released;
  }
  // The job goes on without it, or it is done, unless a process of it takes part.
  void LeaveOut(const LeftOutWorker& left_out) {
    WorkerStatus& entry = entries_[left_out.worker];
    entry.worker = left_out.worker;
    if (entry.is_alive) return;
    entry.left_out = left_out.why;
    entry.has_left = entry.has_left || left_out.why.empty();
  }
  // Workers from `desired` on are no part of the job: later ones with their indices may join.
  void OnResized(uint32_t desired) {
    for (auto& [worker, entry] : entries_) {
      if (worker.value() >= desired) entry.left_out.clear();
    }
  }
  void SetRack(WorkerId worker, const std::string& rack) {
    const auto it = entries_.find(worker);
    if (it != entries_.end()) it->second.rack = rack;
  }
  void OnGone(WorkerId worker) {
    const auto it = entries_.find(worker);
    if (it != entries_.end()) it->second.is_alive = false;
  }

  // Workers 0 to `desired` - 1 have done their part or are left out; or one that suffices by the
  // policy has, and no other takes part any more: the launcher or the operator has ended them.
  bool IsComplete(uint32_t desired, SuccessPolicy policy) const {
    uint32_t num_done = 0;
    uint32_t num_left_out = 0;
    bool is_decided = false;
    bool has_active = false;
    for (const auto& [worker, entry] : entries_) {
      has_active |= entry.is_alive && !entry.has_left && !entry.was_released;
      if (worker.value() >= desired) continue;
      if (!entry.has_left) {
        num_left_out += entry.left_out.empty() ? 0 : 1;
        continue;
      }
      ++num_done;
      is_decided |= SucceedsWith(policy, static_cast<int>(worker.value()));
    }
    return num_done > 0 && (num_done + num_left_out == desired || (is_decided && !has_active));
  }

  // The latest process of each worker, without its position in the view and its steps.
  const std::map<WorkerId, WorkerStatus>& entries() const { return entries_; }
  // The time since its latest process registered.
  Duration JoinedAgo(WorkerId worker, SteadyTime now) const {
    const auto it = joined_at_.find(worker);
    return it == joined_at_.end() ? Duration::zero() : now - it->second;
  }

 private:
  std::map<WorkerId, WorkerStatus> entries_;
  std::map<WorkerId, SteadyTime> joined_at_;
};

}  // namespace pushpull
