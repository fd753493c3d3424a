// SPDX-License-Identifier: Apache-2.0
//
// One shard whose members are all lost, on the server that becomes its primary: what has arrived of
// it so far, from workers and from a checkpoint. Nothing of it is visible before all has arrived.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/server/checkpoint_reader.h"
#include "runtime/server/chunk.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// Thread-confined to its lane.
class ShardRebuild {
 public:
  // `reads_checkpoint`: TakeStored and EndReading will be called.
  ShardRebuild(RebuildShard order, bool reads_checkpoint);

  ShardId shard() const { return order_.shard; }
  const ReplicaSet& entry() const { return order_.entry; }

  // The value of this chunk is still to come from a worker.
  bool Needs(ChunkId chunk) const;
  // kDataLoss: these are not the bytes that the worker reported.
  absl::Status TakeCopy(ChunkId chunk, WorkerId from, HostBuffer value);
  void TakeStored(RestoredChunk stored);
  // The checkpoint of `step` has been read, or why not.
  void EndReading(const absl::Status& status, std::optional<Step> step);

  bool is_complete() const { return missing_ == 0 && !is_reading_; }

  // Sets the chunk to what has arrived for it; is_complete() must hold. After an error the shard
  // cannot be rebuilt. Adds to `report` where the optimizer's state is from.
  absl::Status Install(Chunk& chunk, Rebuilt& report);

 private:
  struct Part {
    RebuiltChunk order;
    std::optional<HostBuffer> value;
    std::optional<RestoredChunk> stored;
  };

  RebuildShard order_;
  std::map<ChunkId, Part> parts_;
  size_t missing_ = 0;  // workers' copies
  bool is_reading_;
  absl::Status read_;
  std::optional<Step> stored_step_;
};

}  // namespace pushpull
