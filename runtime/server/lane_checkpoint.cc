// SPDX-License-Identifier: Apache-2.0
//
// The part of Lane that saves and restores; what is captured when is lane_capture.h's business.
#include <utility>
#include <vector>

#include "runtime/server/lane.h"

namespace pushpull {

void Lane::Restore(RestoredChunk restored) {
  if (!shards_.contains(restored.shard)) AddShard(restored.shard);
  ChunkSlot& slot = *Find(restored.chunk);
  slot.state.Restore(restored.record.version,
                     restored.record.updates,
                     std::move(restored.value),
                     std::move(restored.state));
  std::vector<WorkerClock> clocks;
  for (const WorkerUpdate& update : restored.record.worker_updates)
    clocks.push_back({update.worker, Step{update.update}});
  slot.clocks.Restore(std::move(clocks));
}

std::vector<uint64_t> Lane::CaptureSizes() const {
  std::vector<uint64_t> sizes;
  for (const auto& [chunk, slot] : slots_) {
    if (!slot->shard->member.reigns()) continue;
    sizes.push_back(slot->state.num_bytes());
    sizes.push_back(slot->state.state_bytes());
  }
  return sizes;
}

void Lane::BeginCapture(const Capture& order) {
  std::vector<ShardSlot*> shards;
  shards.reserve(shards_.size());
  for (const auto& [id, shard] : shards_) shards.push_back(shard.get());
  capture_.Begin(order, shards);
}

}  // namespace pushpull
