// SPDX-License-Identifier: Apache-2.0
//
// What a tensor is, once for the whole job: the same description at the coordinator, on every
// server and in every worker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/optim/optimizer.h"
#include "runtime/tensor/codec.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/reduction.h"

namespace pushpull {

// As a worker registers it. Two workers that register the same name must agree in all of it.
struct TensorSpec {
  std::string name;
  std::vector<int64_t> dims;  // empty: a scalar
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kMean;
  OptimizerSpec optimizer;
  // How gradients travel; values come back as they are. Sums are those of float32 whatever it is.
  Codec codec = Codec::kNone;
};

// Where the coordinator has put it: its chunks have consecutive ids from first_chunk on, and
// shards[i] is the virtual shard of chunk first_chunk + i.
struct PlacedTensor {
  TensorId id;
  TensorSpec spec;
  ChunkId first_chunk;
  std::vector<ShardId> shards;
};

}  // namespace pushpull
