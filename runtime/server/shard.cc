// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/shard.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

#include "runtime/server/chunk.h"
#include "runtime/server/step_policy.h"
#include "runtime/shard/chunk.h"
#include "runtime/store/row_layout.h"
#include "runtime/transport/lane.h"

namespace pushpull {

Shard::Shard(ShardId id, ServerId self, std::span<const ChunkPosition> chunks)
    : id_(id), member_(self, chunks.size()) {
  for (const auto& [tensor, index] : chunks) {
    // The coordinator has checked the shape.
    const uint64_t bytes = PlacedBytes(tensor->spec).value_or(0);
    const uint64_t chunk_bytes = std::min(kChunkBytes, bytes - index * kChunkBytes);
    chunks_.push_back(
        std::make_unique<Chunk>(*this, chunks_.size(), ChunkPosition{tensor, index}, chunk_bytes));
  }
}

Shard::~Shard() = default;

Chunk* Shard::Find(ChunkId chunk) const {
  const auto at = absl::c_lower_bound(
      chunks_, chunk, [](const auto& other, ChunkId id) { return other->id() < id; });
  return at != chunks_.end() && (*at)->id() == chunk ? at->get() : nullptr;
}

std::vector<ChunkStamp> Shard::Stamps() const {
  std::vector<ChunkStamp> stamps;
  stamps.reserve(chunks_.size());
  for (size_t i = 0; i < chunks_.size(); ++i)
    stamps.push_back({chunks_[i]->state().version(), member_.chunk_epoch(i)});
  return stamps;
}

Promise Shard::Report() const {
  return {
      .shard = id_, .entry = member_.entry(), .seq = member_.seq(), .is_full = member_.is_full()};
}

std::optional<Handover> Shard::TakeHandoverIfFree(const StepPolicy& policy) {
  if (!deferred_) return std::nullopt;
  const bool holds = absl::c_any_of(chunks_, [&](const auto& chunk) {
    return policy.HoldsApart(*chunk) && !chunk->step().held().empty();
  });
  return holds ? std::nullopt : std::exchange(deferred_, std::nullopt);
}

// ---- LaneShards ----

bool LaneShards::Install(std::shared_ptr<const std::vector<PlacedTensor>> tensors) {
  if (is_installed()) return false;
  tensors_ = std::move(tensors);
  for (const PlacedTensor& tensor : *tensors_) {
    shard_of_chunk_.insert(shard_of_chunk_.end(), tensor.shards.begin(), tensor.shards.end());
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      if (LaneOf(tensor.shards[i], lane_count_) == lane_)
        positions_[tensor.shards[i]].push_back({&tensor, i});
    }
  }
  return true;
}

bool LaneShards::Update(ShardId shard, const ReplicaSet& entry) {
  if (!IsShard(shard) || LaneOf(shard, lane_count_) != lane_) return false;
  if (entry.epoch.term < entries_.promised()) return false;
  entries_.Update(shard, entry);
  if (entry.RoleOf(self_) != ReplicaRole::kNone) FindOrAdd(shard);
  return true;
}

void LaneShards::Promise(Term term) {
  entries_.Promise(term);
  for (const auto& [id, shard] : shards_) shard->member().Promise(term);
}

ServerReport LaneShards::Report() const {
  ServerReport report;
  if (is_installed()) report.tensors = *tensors_;
  for (const auto& [id, shard] : shards_) report.promises.push_back(shard->Report());
  for (uint32_t i = 0; i < kShardCount; ++i) {
    const ReplicaSet& known = entry(ShardId{i});
    if (known.epoch > Epoch{}) report.entries.emplace_back(ShardId{i}, known);
  }
  return report;
}

const ReplicaSet& LaneShards::entry(ShardId id) const {
  const ReplicaSet& installed = entries_.entry(id);
  const Shard* shard = Find(id);
  return shard != nullptr && shard->member().entry().epoch > installed.epoch
             ? shard->member().entry()
             : installed;
}

std::optional<ShardId> LaneShards::ShardOf(ChunkId chunk) const {
  if (chunk.value() >= shard_of_chunk_.size()) return std::nullopt;
  return shard_of_chunk_[chunk.value()];
}

Chunk* LaneShards::Find(ChunkId chunk) const {
  const auto it = chunks_.find(chunk);
  return it == chunks_.end() ? nullptr : it->second;
}

Shard* LaneShards::Find(ShardId shard) const {
  const auto it = shards_.find(shard);
  return it == shards_.end() ? nullptr : it->second.get();
}

Shard& LaneShards::FindOrAdd(ShardId id) {
  std::unique_ptr<Shard>& shard = shards_[id];
  if (shard == nullptr) {
    shard = std::make_unique<Shard>(id, self_, positions_[id]);
    shard->member().Promise(entries_.promised());
    for (const std::unique_ptr<Chunk>& chunk : shard->chunks())
      chunks_.emplace(chunk->id(), chunk.get());
  }
  return *shard;
}

}  // namespace pushpull
