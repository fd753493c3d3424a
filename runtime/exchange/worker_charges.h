// SPDX-License-Identifier: Apache-2.0
//
// How many bytes a lane keeps for each worker: of one that sends much and receives nothing, no more
// than kExchangeBytesPerWorkerMax. Pure: no time, no peers, no threads.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

#include "runtime/base/ids.h"

namespace pushpull {

// Thread-compatible.
class WorkerCharges {
 public:
  // kResourceExhausted, which begins with `what`, if so many bytes more were above the limit.
  absl::Status CheckRoom(const std::string& what, WorkerId worker, uint64_t bytes) const;

  void Add(WorkerId worker, uint64_t bytes) { bytes_[worker] += bytes; }
  // Not more than were added.
  void Remove(WorkerId worker, uint64_t bytes);
  uint64_t BytesOf(WorkerId worker) const;

 private:
  std::map<WorkerId, uint64_t> bytes_;  // none of 0
};

}  // namespace pushpull
