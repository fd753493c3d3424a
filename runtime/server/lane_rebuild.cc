// SPDX-License-Identifier: Apache-2.0
//
// The part of Lane that makes shards anew of which nobody is left (decisions/0020).
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/server/lane.h"

namespace pushpull {

void Lane::BeginRebuild(const RebuildShard& order, bool reads_checkpoint) {
  const bool is_outdated = order.entry.epoch.term < entries_.promised() ||
                           order.entry.epoch <= entries_.entry(order.shard).epoch;
  if (tensors_ == nullptr || is_outdated) return;
  if (!shards_.contains(order.shard)) AddShard(order.shard);
  rebuilds_.erase(order.shard);
  rebuilds_.emplace(order.shard, ShardRebuild(order, reads_checkpoint));
  FinishRebuildIfComplete(order.shard);
}

void Lane::DropRebuild(ShardId shard, Epoch known) {
  const auto it = rebuilds_.find(shard);
  if (it != rebuilds_.end() && it->second.entry().epoch <= known) rebuilds_.erase(it);
}

ShardRebuild* Lane::FindRebuild(ShardId shard, Epoch epoch) {
  const auto it = rebuilds_.find(shard);
  return it != rebuilds_.end() && it->second.entry().epoch == epoch ? &it->second : nullptr;
}

void Lane::TakeStored(Epoch epoch, RestoredChunk stored) {
  if (ShardRebuild* rebuild = FindRebuild(stored.shard, epoch))
    rebuild->TakeStored(std::move(stored));
}

void Lane::EndReading(ShardId shard,
                      Epoch epoch,
                      const absl::Status& status,
                      std::optional<Step> step) {
  ShardRebuild* rebuild = FindRebuild(shard, epoch);
  if (rebuild == nullptr) return;
  rebuild->EndReading(status, step);
  FinishRebuildIfComplete(shard);
}

std::span<std::byte> Lane::PlaceCopy(Connection& connection, const FrameHeader& header) {
  ChunkSlot* slot = Find(header.chunk);
  if (slot == nullptr || header.payload_bytes != slot->state.num_bytes()) return {};
  const ShardRebuild* rebuild = FindRebuild(slot->shard->id, header.epoch);
  if (rebuild == nullptr || !rebuild->Wants(header.chunk)) return {};
  absl::StatusOr<HostBuffer> buffer = HostBuffer::Uninitialized(header.payload_bytes);
  if (!buffer.ok()) return {};
  Reception& reception = connection.reception();
  reception.slot = slot;
  reception.place = Reception::Place::kBuffer;
  reception.buffer = *std::move(buffer);
  return reception.buffer.bytes();
}

void Lane::OnCopy(Connection& connection, const FrameHeader& header) {
  Reception reception = std::exchange(connection.reception(), Reception{});
  const std::optional<ShardId> shard = ShardOf(header.chunk);
  if (!shard) return Violate(connection, "a copy of a chunk that there is not");
  ChunkSlot* slot = Find(header.chunk);
  const Epoch known = slot == nullptr ? Epoch{} : slot->shard->member.entry().epoch;
  ShardRebuild* rebuild = FindRebuild(*shard, header.epoch);
  const bool is_early =
      rebuild == nullptr && header.epoch > known && header.epoch > entries_.entry(*shard).epoch;
  const bool is_missed =
      rebuild != nullptr && rebuild->Wants(header.chunk) && reception.slot == nullptr;
  if (is_early || is_missed) {
    return Refuse(
        connection,
        header,
        absl::UnavailableError(absl::StrCat(
            ToString(options_.server), " is not ready for copies of shard ", shard->value())));
  }
  if (rebuild == nullptr || !rebuild->Wants(header.chunk)) return;
  const absl::Status taken =
      rebuild->TakeCopy(header.chunk, header.worker, std::move(reception.buffer));
  if (!taken.ok()) {
    tell_coordinator_(Rebuilt{.shard = *shard, .entry = rebuild->entry(), .status = taken});
    rebuilds_.erase(*shard);
    return;
  }
  FinishRebuildIfComplete(*shard);
}

void Lane::FinishRebuildIfComplete(ShardId id) {
  const auto it = rebuilds_.find(id);
  if (it == rebuilds_.end() || !it->second.is_complete()) return;
  ShardRebuild rebuild = std::move(it->second);
  rebuilds_.erase(it);
  ShardSlot& shard = *shards_.at(id);
  Rebuilt word{.shard = id, .entry = rebuild.entry()};
  for (ChunkSlot* slot : shard.chunks) {
    if (word.status.ok()) word.status = rebuild.Install(*slot, word);
  }
  if (word.status.ok()) {
    replication_.Install(shard, rebuild.entry(), ShardMember::Via::kRebuilt);
    log_.Info("a lost shard is here anew",
              {{"shard", id.value()}, {"chunks", shard.chunks.size()}});
  }
  tell_coordinator_(std::move(word));
}

}  // namespace pushpull
