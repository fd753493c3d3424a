// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/lane_rebuilds.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/server/wire_values.h"

namespace pushpull {

using Source = RebuiltChunk::Source;

ShardRebuild::ShardRebuild(RebuildShard order, bool reads_checkpoint)
    : order_(std::move(order)), is_reading_(reads_checkpoint) {
  for (const RebuiltChunk& chunk : order_.chunks) {
    parts_[chunk.chunk] = {.order = chunk, .value = {}, .stored = {}};
    if (chunk.source == Source::kWorker) ++missing_;
  }
}

bool ShardRebuild::Needs(ChunkId chunk) const {
  const auto part = parts_.find(chunk);
  return part != parts_.end() && part->second.order.source == Source::kWorker &&
         !part->second.value;
}

absl::Status ShardRebuild::TakeCopy(const FrameHeader& copy, HostBuffer value) {
  const ChunkId chunk = copy.chunk;
  Part& part = parts_.at(chunk);
  if (ChecksumPayload(value.bytes()) != part.order.checksum) {
    return absl::DataLossError(
        absl::StrCat("the copy of chunk ",
                     chunk.value(),
                     " that ",
                     ToString(copy.worker),
                     " sent is not what it had when it was asked: its program has written to the "
                     "memory of the value"));
  }
  part.value = std::move(value);
  part.has_gradient = HadGradient(copy);
  --missing_;
  return absl::OkStatus();
}

void ShardRebuild::TakeStored(RestoredChunk stored) {
  const auto part = parts_.find(stored.chunk);
  if (part != parts_.end()) part->second.stored = std::move(stored);
}

void ShardRebuild::EndReading(const absl::StatusOr<Step>& read) {
  is_reading_ = false;
  read_ = read;
}

absl::Status ShardRebuild::Install(Chunk& chunk, Rebuilt& report) {
  Part& part = parts_[chunk.id()];
  chunk.Clear();
  if (part.order.source == Source::kNew) return absl::OkStatus();
  const bool is_stored = read_.ok() && part.stored.has_value();
  if (part.order.source == Source::kCheckpoint) {
    if (!is_stored) {
      return read_.ok() ? absl::NotFoundError(absl::StrCat(chunk.Name(), " is in no checkpoint"))
                        : read_.status();
    }
    part.order.version = std::max(part.order.version, part.stored->state.version);
    part.value = std::move(part.stored->state.value);
  }
  if (part.value && part.order.source == Source::kWorker) {
    PUSHPULL_ASSIGN_OR_RETURN(part.value, WithMasterValues(chunk, *std::move(part.value)));
  }
  if (!part.value) {
    return absl::InternalError(absl::StrCat(chunk.Name(), " is not in the order to rebuild it"));
  }
  if (chunk.state().state_bytes() > 0) {
    report.has_optimizer_state = true;
    if (is_stored) report.state_step = *read_;
    if (!read_.ok()) report.state_problem = std::string(read_.status().message());
  }
  HostBuffer state;
  if (is_stored) {
    state = std::move(part.stored->state.optimizer_state);
  } else {
    PUSHPULL_ASSIGN_OR_RETURN(state, HostBuffer::Zeroed(chunk.state().state_bytes()));
  }
  return chunk.Restore({.version = part.order.version,
                        .updates = is_stored ? part.stored->state.updates : 0,
                        .value = *std::move(part.value),
                        .optimizer_state = std::move(state),
                        .made_by = {.has_gradient = part.has_gradient}});
}

// ---- LaneRebuilds ----

void LaneRebuilds::Begin(const RebuildShard& order, bool reads_checkpoint) {
  const bool is_outdated = order.entry.epoch.term < lane_.shards.promised() ||
                           order.entry.epoch <= lane_.shards.entry(order.shard).epoch;
  if (!lane_.shards.is_installed() || is_outdated) return;
  lane_.shards.FindOrAdd(order.shard);
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

void LaneRebuilds::EndReading(ShardId shard, Epoch epoch, const absl::StatusOr<Step>& read) {
  ShardRebuild* rebuild = Find(shard, epoch);
  if (rebuild == nullptr) return;
  rebuild->EndReading(read);
  FinishIfComplete(shard);
}

std::span<std::byte> LaneRebuilds::PlaceCopy(Reception& reception, const FrameHeader& header) {
  Chunk* chunk = lane_.shards.Find(header.chunk);
  const bool fits = chunk != nullptr && !HoldsRows(*chunk) &&
                    header.dtype == chunk->tensor().spec.dtype &&
                    header.payload_bytes == WireBytes(*chunk);
  if (!fits) return {};
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
  const Chunk* chunk = lane_.shards.Find(header.chunk);
  const Epoch known = chunk == nullptr ? Epoch{} : chunk->shard().member().entry().epoch;
  ShardRebuild* rebuild = Find(shard, header.epoch);
  const bool is_needed = rebuild != nullptr && rebuild->Needs(header.chunk);
  // The worker may learn of the rebuild before this server does; or the payload was dropped because
  // the order had not arrived yet or memory was lacking.
  const bool is_early =
      rebuild == nullptr && header.epoch > known && header.epoch > lane_.shards.entry(shard).epoch;
  const bool was_dropped = is_needed && reception.chunk == nullptr;
  if (is_early || was_dropped)
    return absl::UnavailableError(absl::StrCat("not ready for copies of shard ", shard.value()));
  if (!is_needed) return absl::OkStatus();
  const absl::Status taken = rebuild->TakeCopy(header, std::move(reception.buffer));
  if (taken.ok()) {
    FinishIfComplete(shard);
  } else {
    lane_.notify(Rebuilt{.shard = shard, .entry = rebuild->entry(), .status = taken});
    rebuilds_.erase(shard);
  }
  return absl::OkStatus();
}

// No part of the shard is visible before all of it is here. The entry comes into force with the
// last chunk, and the coordinator is notified after that: when others learn of the entry, this
// server already serves under it.
void LaneRebuilds::FinishIfComplete(ShardId id) {
  const auto it = rebuilds_.find(id);
  if (it == rebuilds_.end() || !it->second.is_complete()) return;
  ShardRebuild rebuild = std::move(it->second);
  rebuilds_.erase(it);
  Shard& shard = *lane_.shards.Find(id);
  Rebuilt report{.shard = id, .entry = rebuild.entry()};
  for (const std::unique_ptr<Chunk>& chunk : shard.chunks()) {
    if (report.status.ok()) report.status = rebuild.Install(*chunk, report);
  }
  if (report.status.ok()) {
    replication_.Install(shard, rebuild.entry(), ShardMember::Via::kRebuilt);
    lane_.log.Info("lost shard rebuilt",
                   {{"shard", id.value()}, {"chunks", shard.chunks().size()}});
  }
  lane_.notify(std::move(report));
}

}  // namespace pushpull
