// SPDX-License-Identifier: Apache-2.0
//
// Which workers the job shall have, and what became of each index across its processes. A worker
// that is not wanted any more is released: told to finish its step and leave; wanted again, its
// index is started anew. Pure.
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

  // Indices 0 to `wanted` - 1 are wanted.
  explicit WorkerRoster(uint32_t wanted) : wanted_(wanted) {}

  uint32_t wanted() const { return wanted_; }
  bool IsWanted(WorkerId worker) const { return worker.value() < wanted_; }
  void SetWanted(uint32_t wanted) { wanted_ = wanted; }

  void OnRegistered(const RegisterWorker& info);
  // It leaves in order; `is_released`: because it was told to.
  void OnLeft(WorkerId worker, bool is_released);
  void OnGone(WorkerId worker);

  // Every worker that is wanted has done its part.
  bool IsComplete() const;

  const std::map<WorkerId, Entry>& entries() const { return entries_; }

 private:
  uint32_t wanted_;
  std::map<WorkerId, Entry> entries_;
};

}  // namespace pushpull
