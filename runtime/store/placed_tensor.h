// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pushpull/tensor_spec.h"

#include "runtime/base/ids.h"

namespace pushpull {

// A registered tensor and where the coordinator has placed it: its chunks have consecutive ids from
// first_chunk on, and shards[i] is the virtual shard of chunk first_chunk + i.
struct PlacedTensor {
  TensorId id;
  TensorSpec spec;
  ChunkId first_chunk;
  std::vector<ShardId> shards;
};

}  // namespace pushpull
