// SPDX-License-Identifier: Apache-2.0
//
// Counts the bytes that a lane keeps for each worker: no more than kExchangeBytesPerWorkerMax, even
// for one that sends much and receives nothing. Pure: no time, no peers, no threads.
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
  // kResourceExhausted, with a text that begins with `what`, if `bytes` more would exceed the
  // limit.
  absl::Status CheckRoom(const std::string& what, WorkerId worker, uint64_t bytes) const;

  void Add(WorkerId worker, uint64_t bytes) { bytes_[worker] += bytes; }
  // At most as many as were added.
  void Remove(WorkerId worker, uint64_t bytes);
  uint64_t BytesOf(WorkerId worker) const;

 private:
  std::map<WorkerId, uint64_t> bytes_;  // no zeros
};

}  // namespace pushpull
