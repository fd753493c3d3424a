// SPDX-License-Identifier: Apache-2.0
//
// Reads a server's shards from a checkpoint, written by any number of servers.
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

// Calls `deliver` with every chunk of the shards that `order` names, in file order, and stops at
// its first error. If only values are wanted, with those that the checkpoint has, at version 0 and
// with an optimizer that has made no step. `tensors`: all tensors of the job. Blocks while it
// reads.
//
//   kDataLoss            damaged, with file and offset, or not the checkpoint of `order`
//   kUnimplemented       a newer format
//   kInvalidArgument     the checkpoint's tensors differ from the job's
//   kResourceExhausted   no memory for a chunk
//   kNotFound, others    unreadable from here: this server does not see the folder
absl::Status ReadChunks(FileSystem& files,
                        const Restore& order,
                        const std::vector<PlacedTensor>& tensors,
                        const std::function<absl::Status(RestoredChunk)>& deliver);

}  // namespace pushpull
