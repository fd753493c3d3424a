// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/shard.h"

#include <algorithm>
#include <utility>

#include "runtime/server/chunk.h"
#include "runtime/server/step_policy.h"
#include "runtime/shard/chunk.h"
#include "runtime/tensor/shape.h"

namespace pushpull {

Shard::Shard(ShardId id, ServerId self, std::span<const ChunkPosition> chunks)
    : id_(id), member_(self, chunks.size()) {
  for (const auto& [tensor, index] : chunks) {
    // The coordinator has checked the shape.
    const uint64_t bytes = NumBytes(tensor->spec.dims, tensor->spec.dtype).value_or(0);
    const uint64_t chunk_bytes = std::min(kChunkBytes, bytes - index * kChunkBytes);
    chunks_.push_back(
        std::make_unique<Chunk>(*this, chunks_.size(), ChunkPosition{tensor, index}, chunk_bytes));
  }
}

Shard::~Shard() = default;

Chunk* Shard::Find(ChunkId chunk) const {
  const auto at = std::lower_bound(
      chunks_.begin(), chunks_.end(), chunk, [](const std::unique_ptr<Chunk>& other, ChunkId id) {
        return other->id() < id;
      });
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
  const bool holds = std::any_of(chunks_.begin(), chunks_.end(), [&](const auto& chunk) {
    return policy.HoldsApart(*chunk) && !chunk->step().held().empty();
  });
  return holds ? std::nullopt : std::exchange(deferred_, std::nullopt);
}

}  // namespace pushpull
