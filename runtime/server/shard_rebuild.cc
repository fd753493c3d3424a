// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/shard_rebuild.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

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

absl::Status ShardRebuild::TakeCopy(ChunkId chunk, WorkerId from, HostBuffer value) {
  Part& part = parts_.at(chunk);
  if (ChecksumPayload(value.bytes()) != part.order.checksum) {
    return absl::DataLossError(
        absl::StrCat("the copy of chunk ",
                     chunk.value(),
                     " that ",
                     ToString(from),
                     " sent is not what it had when it was asked: its program has written to the "
                     "memory of the value"));
  }
  part.value = std::move(value);
  --missing_;
  return absl::OkStatus();
}

void ShardRebuild::TakeStored(RestoredChunk stored) {
  const auto part = parts_.find(stored.chunk);
  if (part != parts_.end()) part->second.stored = std::move(stored);
}

void ShardRebuild::EndReading(const absl::Status& status, std::optional<Step> step) {
  is_reading_ = false;
  read_ = status;
  stored_step_ = step;
}

absl::Status ShardRebuild::Install(Chunk& chunk, Rebuilt& report) {
  Part& part = parts_[chunk.id()];
  chunk.Clear();
  if (part.order.source == Source::kNew) return absl::OkStatus();
  const bool is_stored = read_.ok() && part.stored.has_value();
  if (part.order.source == Source::kCheckpoint) {
    if (!is_stored) {
      return read_.ok() ? absl::NotFoundError(absl::StrCat(chunk.Name(), " is in no checkpoint"))
                        : read_;
    }
    part.order.version = std::max(part.order.version, part.stored->record.version);
    part.value = std::move(part.stored->value);
  }
  if (!part.value) {
    return absl::InternalError(absl::StrCat(chunk.Name(), " is not in the order to rebuild it"));
  }
  if (chunk.state().state_bytes() > 0) {
    report.has_optimizer_state = true;
    if (is_stored) report.state_step = stored_step_;
    if (!read_.ok()) report.state_problem = std::string(read_.message());
  }
  HostBuffer state;
  if (is_stored) {
    state = std::move(part.stored->state);
  } else {
    PUSHPULL_ASSIGN_OR_RETURN(state, HostBuffer::Zeroed(chunk.state().state_bytes()));
  }
  chunk.Restore({.version = part.order.version,
                 .updates = is_stored ? part.stored->record.updates : 0,
                 .value = *std::move(part.value),
                 .optimizer_state = std::move(state)});
  return absl::OkStatus();
}

}  // namespace pushpull
