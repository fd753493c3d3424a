// SPDX-License-Identifier: Apache-2.0
//
// Measures which algorithm is the fastest between the ranks of a communicator.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "pushpull/deadline.h"

#include "runtime/collective/communicator.h"

namespace pushpull {

struct RaceOptions {
  uint64_t bytes_max = 32 << 20;  // of the arrays that are measured
  uint32_t rounds = 5;            // of which the median counts
};

// All ranks call it together, once they are connected; blocks, as a rule for a second or two. Each
// size of kMeasuredBytes is reduced, gathered and broadcast by every algorithm that was not far
// behind with fewer bytes. The slowest rank's time counts, and all ranks get the same table, which
// the communicator then uses. Errors are those of its calls.
absl::Status RaceAlgorithms(Communicator& ranks, const RaceOptions& options, Deadline deadline);

}  // namespace pushpull
