// SPDX-License-Identifier: Apache-2.0
//
// Which lane of its server serves a shard: both ends compute it, so a worker sends every chunk over
// the connection whose thread owns it (decisions/0003-lanes.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/ids.h"

namespace pushpull {

// A server's shards are every n-th one where n servers share them, so the plain remainder would
// leave lanes empty; Fibonacci hashing (Knuth, TAOCP 3, 6.4) spreads any arithmetic sequence.
inline size_t LaneOf(ShardId shard, size_t num_lanes) {
  const uint32_t mixed = shard.value() * uint32_t{2654435769};
  return (mixed >> 16) % num_lanes;
}

}  // namespace pushpull
