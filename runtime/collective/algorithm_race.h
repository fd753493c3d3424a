// SPDX-License-Identifier: Apache-2.0
//
// Measures which algorithm is fastest between the ranks of a communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "pushpull/deadline.h"

#include "runtime/collective/communicator.h"

namespace pushpull {

struct RaceOptions {
  uint64_t bytes_max = 16 << 20;  // the largest array to measure
  uint32_t rounds = 5;            // per algorithm; the median counts
  // Memory like that of the arrays to come, shared or not, of `bytes_max` bytes, which is
  // overwritten. Empty: private memory.
  std::span<std::byte> memory = {};
};

// All ranks call it together, once they are connected; blocks, usually for a second or two. Each
// size in kMeasuredBytes is reduced, gathered and broadcast by every algorithm that was not far
// behind with fewer bytes. The slowest rank's time counts, and all ranks get the same table, which
// the communicator then uses. Errors are those of the communicator's calls.
absl::Status RaceAlgorithms(Communicator& ranks, const RaceOptions& options, Deadline deadline);

}  // namespace pushpull
