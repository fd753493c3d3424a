// SPDX-License-Identifier: Apache-2.0
//
// A lane's rebuilds of lost shards (docs/decisions/0020-lost-shards-from-workers.md): collects each
// shard's chunks from workers and, if one is read, a checkpoint; then this server becomes the
// shard's primary and notifies the coordinator.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/server/checkpoint_reader.h"
#include "runtime/server/connection.h"
#include "runtime/server/lane_context.h"
#include "runtime/server/shard_replication.h"

namespace pushpull {

// A shard whose members are all lost, on the server that becomes its primary: the parts that have
// arrived so far, from workers and from a checkpoint. None is visible until all have arrived.
// Thread-confined to its lane.
class ShardRebuild {
 public:
  // `reads_checkpoint`: TakeStored and EndReading will be called.
  ShardRebuild(RebuildShard order, bool reads_checkpoint);

  const ReplicaSet& entry() const { return order_.entry; }

  // The value of this chunk has yet to arrive from a worker.
  bool Needs(ChunkId chunk) const;
  // kDataLoss: the bytes are not those that the worker reported.
  absl::Status TakeCopy(const FrameHeader& copy, HostBuffer value);
  void TakeStored(RestoredChunk stored);
  // Reading has ended: the step of the checkpoint, or why it could not be read.
  void EndReading(const absl::StatusOr<Step>& read);

  bool is_complete() const { return missing_ == 0 && !is_reading_; }

  // Sets the chunk to what has arrived for it; is_complete() must hold. After an error the shard
  // cannot be rebuilt. Records in `report` where the optimizer state came from.
  absl::Status Install(Chunk& chunk, Rebuilt& report);

 private:
  struct Part {
    RebuiltChunk order;
    std::optional<HostBuffer> value;
    std::optional<RestoredChunk> stored;
    bool has_gradient = true;  // somebody had one in the step that made the worker's copy
  };

  RebuildShard order_;
  std::map<ChunkId, Part> parts_;
  size_t missing_ = 0;  // workers' copies
  bool is_reading_;
  absl::StatusOr<Step> read_ = Step{};  // the step of the checkpoint
};

// Thread-confined to its lane.
class LaneRebuilds {
 public:
  // Both outlive this object.
  LaneRebuilds(LaneContext& lane, ShardReplication& replication)
      : lane_(lane), replication_(replication) {}

  // Starts over if the shard is already being rebuilt. Ignored if a newer entry is known.
  // `reads_checkpoint`: TakeStored and EndReading will be called.
  void Begin(const RebuildShard& order, bool reads_checkpoint);
  // An entry of epoch `known` is in force: drops a rebuild under the same or a lower epoch.
  void DropOutdated(ShardId shard, Epoch known);
  void TakeStored(Epoch epoch, RestoredChunk stored);
  void EndReading(ShardId shard, Epoch epoch, const absl::StatusOr<Step>& read);

  // Where a worker's copy of a chunk goes; empty if it is not needed.
  std::span<std::byte> PlaceCopy(Reception& reception, const FrameHeader& header);
  // Takes a worker's copy of a chunk of `shard`. kUnavailable: not ready for it; the worker sends
  // it again.
  absl::Status TakeCopy(ShardId shard, Reception reception, const FrameHeader& header);

 private:
  ShardRebuild* Find(ShardId shard, Epoch epoch);
  void FinishIfComplete(ShardId shard);

  LaneContext& lane_;
  ShardReplication& replication_;
  std::map<ShardId, ShardRebuild> rebuilds_;
};

}  // namespace pushpull
