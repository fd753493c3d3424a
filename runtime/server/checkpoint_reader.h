// SPDX-License-Identifier: Apache-2.0
//
// Reads a server's shards from a checkpoint, which any number of servers may have written.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"

#include "runtime/checkpoint/file_system.h"
#include "runtime/membership/control.h"
#include "runtime/server/chunk.h"

namespace pushpull {

// One chunk of the job, with its id in the job; its id in the checkpoint may differ.
struct RestoredChunk {
  ChunkId chunk;
  ShardId shard;
  ChunkSnapshot state;
};

// Calls `deliver` with every chunk of the shards that `order` names, in the order of the
// files; stops at its first error. `tensors` are all of the job's. Blocks for as long as
// reading takes.
//
//   kDataLoss            damaged, with file and offset, or another checkpoint than `order` means
//   kUnimplemented       a later format
//   kInvalidArgument     its tensors are not the job's
//   kResourceExhausted   no memory for a chunk
//   kNotFound, others    it cannot be read from here: this server does not see the folder
absl::Status ReadChunks(FileSystem& files,
                        const Restore& order,
                        const std::vector<PlacedTensor>& tensors,
                        const std::function<absl::Status(RestoredChunk)>& deliver);

}  // namespace pushpull
