// SPDX-License-Identifier: Apache-2.0
//
// The virtual shards on a lane: for each, this server's role in the replica set, its chunks, and a
// handover that waits.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/replication/shard_member.h"
#include "runtime/shard/shard_map.h"
#include "runtime/store/placed_tensor.h"

namespace pushpull {

class Chunk;
class StepPolicy;

// A chunk's place among its tensor's chunks.
struct ChunkPosition {
  const PlacedTensor* tensor = nullptr;
  uint64_t index = 0;
};

// Thread-confined to its lane.
class Shard {
 public:
  // `chunks`: in the order of their ids; their tensors outlive the shard.
  Shard(ShardId id, ServerId self, std::span<const ChunkPosition> chunks);
  ~Shard();

  ShardId id() const { return id_; }
  // This server's role in the shard's replica set. The lane's replication drives it.
  const ShardMember& member() const { return member_; }
  ShardMember& member() { return member_; }

  // In the order of their ids.
  const std::vector<std::unique_ptr<Chunk>>& chunks() const { return chunks_; }
  // Null if the chunk belongs to another shard.
  Chunk* Find(ChunkId chunk) const;
  std::vector<ChunkStamp> Stamps() const;
  // How far this server's log is, for a coordinator that chooses a primary.
  Promise Report() const;

  // Defers a handover until the shard holds nothing apart; a newer one replaces an earlier one.
  void DeferHandover(const Handover& handover) { deferred_ = handover; }
  // The handover to begin now; returned once. Held contributions do not travel with the shard, and
  // their worker may die before it can send them to the new primary, so none may be held. That
  // point is always reached: all chunks are empty before the first push of the next step.
  std::optional<Handover> TakeHandoverIfFree(const StepPolicy& policy);

 private:
  const ShardId id_;
  ShardMember member_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::optional<Handover> deferred_;
};

// A lane's table of shards: the newest known entry of each, and the shards and chunks of which this
// server is, or was, a member. Thread-confined to its lane.
class LaneShards {
 public:
  LaneShards(ServerId self, size_t lane, size_t lane_count)
      : self_(self), lane_(lane), lane_count_(lane_count) {}

  // Takes the job's tensors, once, and keeps them alive. False: they were installed before.
  bool Install(std::shared_ptr<const std::vector<PlacedTensor>> tensors);
  bool is_installed() const { return tensors_ != nullptr; }

  // Takes an entry of one of this lane's shards. False: the shard belongs to another lane, or the
  // entry's term is lower than promised. Creates the shard if this server becomes a member for the
  // first time.
  bool Update(ShardId shard, const ReplicaSet& entry);
  // A coordinator with this term is in charge: entries of a lower term are refused from now on.
  void Promise(Term term);
  // The newest known entry of the shard. After a handover the member has one that has not yet come
  // from the coordinator.
  const ReplicaSet& entry(ShardId shard) const;
  Term promised() const { return entries_.promised(); }
  // Tensors, entries and promises, for a new coordinator.
  ServerReport Report() const;

  // The shard of a chunk; none if there is no such chunk.
  std::optional<ShardId> ShardOf(ChunkId chunk) const;
  // Null if this server has never been a member of the shard.
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
