// SPDX-License-Identifier: Apache-2.0
//
// A shard of which nobody is left, on the server that shall reign over it: what has come of it so
// far, from the workers and from a checkpoint. Nothing of it is seen before all is here.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/server/checkpoint_reader.h"
#include "runtime/server/chunk_slot.h"
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
  bool Wants(ChunkId chunk) const;
  // kDataLoss: these are not the bytes that the worker has spoken of.
  absl::Status TakeCopy(ChunkId chunk, WorkerId from, HostBuffer value);
  void TakeStored(RestoredChunk stored);
  // Everything of the checkpoint of this step is here, or why not.
  void EndReading(const absl::Status& status, std::optional<Step> step);

  bool is_complete() const { return missing_ == 0 && !is_reading_; }

  // Sets the chunk to what has come for it; is_complete() must hold. After an error the shard
  // cannot be had. `word` is told what the optimizer's state is.
  absl::Status Install(ChunkSlot& slot, Rebuilt& word);

 private:
  struct Part {
    RebuiltChunk order;
    std::optional<HostBuffer> value;
    std::optional<RestoredChunk> stored;
  };

  const RebuildShard order_;
  std::map<ChunkId, Part> parts_;
  size_t missing_ = 0;  // workers' copies
  bool is_reading_;
  absl::Status read_;
  std::optional<Step> stored_step_;
};

}  // namespace pushpull
