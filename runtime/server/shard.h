// SPDX-License-Identifier: Apache-2.0
//
// One virtual shard on a lane: its role in the replica set, its chunks, and a handover that waits.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/replication/shard_member.h"

namespace pushpull {

class Chunk;
class StepPolicy;
struct PlacedTensor;

// A chunk's place among its tensor's chunks.
struct ChunkPosition {
  const PlacedTensor* tensor = nullptr;
  uint64_t index = 0;
};

// Thread-confined to its lane.
class Shard {
 public:
  // `chunks` in the order of their ids; their tensors outlive the shard.
  Shard(ShardId id, ServerId self, std::span<const ChunkPosition> chunks);
  ~Shard();

  ShardId id() const { return id_; }
  // What this server is in the shard's replica set. The lane's replication drives it.
  const ShardMember& member() const { return member_; }
  ShardMember& member() { return member_; }

  // In the order of their ids.
  const std::vector<std::unique_ptr<Chunk>>& chunks() const { return chunks_; }
  // Null where the chunk is of another shard.
  Chunk* Find(ChunkId chunk) const;
  std::vector<ChunkStamp> Stamps() const;
  // How far this server is, for a coordinator that chooses a primary.
  Promise Report() const;

  // A handover begins when the shard holds nothing apart; a newer one replaces the earlier.
  void DeferHandover(const Handover& handover) { deferred_ = handover; }
  // The handover to begin now, once. Held contributions do not travel with the shard, and their
  // worker may die before it can send them to the new primary; so none may be held. That comes to
  // pass: before the first push of the next step all chunks are empty.
  std::optional<Handover> TakeHandoverIfFree(const StepPolicy& policy);

 private:
  const ShardId id_;
  ShardMember member_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::optional<Handover> deferred_;
};

}  // namespace pushpull
