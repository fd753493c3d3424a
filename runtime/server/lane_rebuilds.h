// SPDX-License-Identifier: Apache-2.0
//
// A lane's rebuilds of lost shards (docs/decisions/0020-lost-shards-from-workers.md): collects each
// shard's chunks from workers and, where it is read, a checkpoint; then this server becomes its
// primary and notifies the coordinator.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"

#include "runtime/base/log.h"
#include "runtime/server/connection.h"
#include "runtime/server/lane_shards.h"
#include "runtime/server/shard_rebuild.h"
#include "runtime/server/shard_replication.h"

namespace pushpull {

// Thread-confined to its lane.
class LaneRebuilds {
 public:
  // `shards` and `replication` outlive this object.
  LaneRebuilds(LaneShards& shards,
               ShardReplication& replication,
               Log log,
               CoordinatorNotifier notify)
      : shards_(shards),
        replication_(replication),
        log_(std::move(log)),
        notify_(std::move(notify)) {}

  // Starts over where the shard is being rebuilt already. Ignored where a newer entry is known.
  // `reads_checkpoint`: TakeStored and EndReading will be called.
  void Begin(const RebuildShard& order, bool reads_checkpoint);
  // An entry of epoch `known` is in force: a rebuild under an earlier one is dropped.
  void DropOutdated(ShardId shard, Epoch known);
  void TakeStored(Epoch epoch, RestoredChunk stored);
  void EndReading(ShardId shard, Epoch epoch, const absl::Status& status, std::optional<Step> step);

  // Where a worker's copy of a chunk goes; nowhere where it is not needed.
  std::span<std::byte> PlaceCopy(Reception& reception, const FrameHeader& header);
  // Takes a worker's copy, of a chunk of `shard`. kUnavailable: not ready for it; the worker sends
  // it again.
  absl::Status TakeCopy(ShardId shard, Reception reception, const FrameHeader& header);

 private:
  ShardRebuild* Find(ShardId shard, Epoch epoch);
  void FinishIfComplete(ShardId shard);

  LaneShards& shards_;
  ShardReplication& replication_;
  const Log log_;
  const CoordinatorNotifier notify_;
  std::map<ShardId, ShardRebuild> rebuilds_;
};

}  // namespace pushpull
