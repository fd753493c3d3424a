// SPDX-License-Identifier: Apache-2.0
//
// Reads from a checkpoint what a server shall hold of it. Any number of servers may have written
// it.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/ids.h"
#include "runtime/checkpoint/chunk_record.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/membership/control.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// One chunk of the job, with its id in the job, which in the checkpoint may be another.
struct RestoredChunk {
  ChunkId chunk;
  ShardId shard;
  ChunkRecord record;
  HostBuffer value;
  HostBuffer state;
};

// Calls `deliver` with every chunk of the shards that `order` names, in the order in which they lie
// in the files; its first error ends it. `tensors` are all of the job's. Blocks for as long as
// reading takes.
//
// kDataLoss            damaged, with file and offset, or another checkpoint than `order` means.
// kUnimplemented       a later format.
// kInvalidArgument     its tensors are not the job's.
// kResourceExhausted   no memory for a chunk.
// kNotFound, others    it cannot be read from here: this server does not see the folder.
absl::Status ReadChunks(FileSystem& files,
                        const Restore& order,
                        const std::vector<PlacedTensor>& tensors,
                        const std::function<absl::Status(RestoredChunk)>& deliver);

}  // namespace pushpull
