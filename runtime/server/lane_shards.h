// SPDX-License-Identifier: Apache-2.0
//
// A lane's table of shards: the entry known of each, and the shards and chunks of which this server
// is, or was, a member.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/server/chunk.h"
#include "runtime/server/shard.h"
#include "runtime/shard/shard_map.h"
#include "runtime/store/placed_tensor.h"

namespace pushpull {

// Thread-confined to its lane.
class LaneShards {
 public:
  LaneShards(ServerId self, size_t lane, size_t lane_count)
      : self_(self), lane_(lane), lane_count_(lane_count) {}

  // The job's tensors, once; their memory is kept. False: they were installed before.
  bool Install(std::shared_ptr<const std::vector<PlacedTensor>> tensors);
  bool is_installed() const { return tensors_ != nullptr; }

  // Takes an entry of one of this lane's shards. False: it is of another lane, or of an earlier
  // term than promised. Creates the shard where this server becomes a member for the first time.
  bool Update(ShardId shard, const ReplicaSet& entry);
  // A coordinator of this term is in charge: entries of a lower one are refused from now on.
  void Promise(Term term);
  // The newest entry known of the shard. After a handover the member has one that has not come
  // from the coordinator yet.
  const ReplicaSet& entry(ShardId shard) const;
  Term promised() const { return entries_.promised(); }
  // Tensors, entries and promises, for a new coordinator.
  ServerReport Report() const;

  // The shard of a chunk; none where there is no such chunk.
  std::optional<ShardId> ShardOf(ChunkId chunk) const;
  // Null where this server has never been a member of the shard.
  Chunk* Find(ChunkId chunk) const;
  Shard* Find(ShardId shard) const;
  Shard& FindOrAdd(ShardId shard);

  const absl::flat_hash_map<ShardId, std::unique_ptr<Shard>>& all() const { return shards_; }
  const absl::flat_hash_map<ChunkId, Chunk*>& chunks() const { return chunks_; }

 private:
  const ServerId self_;
  const size_t lane_;
  const size_t lane_count_;
  std::shared_ptr<const std::vector<PlacedTensor>> tensors_;
  std::vector<ShardId> shard_of_chunk_;  // by ChunkId
  absl::flat_hash_map<ShardId, std::vector<ChunkPosition>> positions_;
  ShardMap entries_;
  absl::flat_hash_map<ShardId, std::unique_ptr<Shard>> shards_;
  absl::flat_hash_map<ChunkId, Chunk*> chunks_;
};

}  // namespace pushpull
