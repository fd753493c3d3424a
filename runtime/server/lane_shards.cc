// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/lane_shards.h"

#include "runtime/transport/lane.h"

namespace pushpull {

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
