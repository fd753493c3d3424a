// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/lane_rebuilds.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {

void LaneRebuilds::Begin(const RebuildShard& order, bool reads_checkpoint) {
  const bool is_outdated = order.entry.epoch.term < shards_.promised() ||
                           order.entry.epoch <= shards_.entry(order.shard).epoch;
  if (!shards_.is_installed() || is_outdated) return;
  shards_.FindOrAdd(order.shard);
  rebuilds_.insert_or_assign(order.shard, ShardRebuild(order, reads_checkpoint));
  FinishIfComplete(order.shard);
}

void LaneRebuilds::DropOutdated(ShardId shard, Epoch known) {
  const auto it = rebuilds_.find(shard);
  if (it != rebuilds_.end() && it->second.entry().epoch <= known) rebuilds_.erase(it);
}

ShardRebuild* LaneRebuilds::Find(ShardId shard, Epoch epoch) {
  const auto it = rebuilds_.find(shard);
  return it != rebuilds_.end() && it->second.entry().epoch == epoch ? &it->second : nullptr;
}

void LaneRebuilds::TakeStored(Epoch epoch, RestoredChunk stored) {
  if (ShardRebuild* rebuild = Find(stored.shard, epoch)) rebuild->TakeStored(std::move(stored));
}

void LaneRebuilds::EndReading(ShardId shard,
                              Epoch epoch,
                              const absl::Status& status,
                              std::optional<Step> step) {
  ShardRebuild* rebuild = Find(shard, epoch);
  if (rebuild == nullptr) return;
  rebuild->EndReading(status, step);
  FinishIfComplete(shard);
}

std::span<std::byte> LaneRebuilds::PlaceCopy(Reception& reception, const FrameHeader& header) {
  Chunk* chunk = shards_.Find(header.chunk);
  if (chunk == nullptr || header.payload_bytes != chunk->state().num_bytes()) return {};
  const ShardRebuild* rebuild = Find(chunk->shard().id(), header.epoch);
  if (rebuild == nullptr || !rebuild->Needs(header.chunk)) return {};
  absl::StatusOr<HostBuffer> buffer = HostBuffer::Uninitialized(header.payload_bytes);
  if (!buffer.ok()) return {};
  reception.chunk = chunk;
  reception.place = Reception::Place::kBuffer;
  reception.buffer = *std::move(buffer);
  return reception.buffer.bytes();
}

absl::Status LaneRebuilds::TakeCopy(ShardId shard, Reception reception, const FrameHeader& header) {
  const Chunk* chunk = shards_.Find(header.chunk);
  const Epoch known = chunk == nullptr ? Epoch{} : chunk->shard().member().entry().epoch;
  ShardRebuild* rebuild = Find(shard, header.epoch);
  const bool is_needed = rebuild != nullptr && rebuild->Needs(header.chunk);
  // The worker may learn of the rebuild before this server; or the order arrived, or memory was
  // lacking, while the payload was already being dropped.
  const bool is_early =
      rebuild == nullptr && header.epoch > known && header.epoch > shards_.entry(shard).epoch;
  const bool was_dropped = is_needed && reception.chunk == nullptr;
  if (is_early || was_dropped)
    return absl::UnavailableError(absl::StrCat("not ready for copies of shard ", shard.value()));
  if (!is_needed) return absl::OkStatus();
  const absl::Status taken =
      rebuild->TakeCopy(header.chunk, header.worker, std::move(reception.buffer));
  if (taken.ok()) {
    FinishIfComplete(shard);
  } else {
    notify_(Rebuilt{.shard = shard, .entry = rebuild->entry(), .status = taken});
    rebuilds_.erase(shard);
  }
  return absl::OkStatus();
}

// Nothing of the shard is visible before all of it is here. The entry comes into force with the
// last chunk, and the coordinator is notified after that: when others learn of the entry, this
// server serves under it.
void LaneRebuilds::FinishIfComplete(ShardId id) {
  const auto it = rebuilds_.find(id);
  if (it == rebuilds_.end() || !it->second.is_complete()) return;
  ShardRebuild rebuild = std::move(it->second);
  rebuilds_.erase(it);
  Shard& shard = *shards_.Find(id);
  Rebuilt report{.shard = id, .entry = rebuild.entry()};
  for (const std::unique_ptr<Chunk>& chunk : shard.chunks()) {
    if (report.status.ok()) report.status = rebuild.Install(*chunk, report);
  }
  if (report.status.ok()) {
    replication_.Install(shard, rebuild.entry(), ShardMember::Via::kRebuilt);
    log_.Info("lost shard rebuilt", {{"shard", id.value()}, {"chunks", shard.chunks().size()}});
  }
  notify_(std::move(report));
}

}  // namespace pushpull
