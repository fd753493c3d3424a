// SPDX-License-Identifier: Apache-2.0
//
// Which lane of its server serves a shard. Both ends compute it, so a worker sends every chunk over
// the connection of the thread that owns it (docs/decisions/0003-lanes.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/ids.h"

namespace pushpull {

// With n servers, a server has every n-th shard, so the plain remainder would leave lanes empty.
// Fibonacci hashing (Knuth, TAOCP 3, 6.4) spreads any arithmetic sequence.
inline size_t LaneOf(ShardId shard, size_t num_lanes) {
  const uint32_t mixed = shard.value() * uint32_t{2654435769};
  return (mixed >> 16) % num_lanes;
}

}  // namespace pushpull
