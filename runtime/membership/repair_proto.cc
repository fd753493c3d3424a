// SPDX-License-Identifier: Apache-2.0
#include "runtime/membership/repair_proto.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "pushpull/v1/control.pb.h"

#include "runtime/base/status_macros.h"
#include "runtime/membership/replica_set_proto.h"
#include "runtime/membership/stats_proto.h"
#include "runtime/shard/chunk.h"

namespace pushpull {
namespace {

constexpr int kChunksOfShardMax = static_cast<int>(kTableBytesMax / kChunkBytes);

absl::StatusOr<ChunkCopy> Read(const v1::FromMember::ChunkCopy& wire) {
  if (wire.kind() > static_cast<uint32_t>(ChunkCopy::Kind::kInitial)) {
    return absl::InvalidArgumentError(
        absl::StrCat("kind of a copy ", wire.kind(), " is not known"));
  }
  return ChunkCopy{.chunk = ChunkId{wire.chunk()},
                   .kind = static_cast<ChunkCopy::Kind>(wire.kind()),
                   .version = Step{wire.version()},
                   .known = Step{wire.known()},
                   .checksum = wire.checksum()};
}

absl::StatusOr<RebuiltChunk> Read(const v1::ToMember::RebuiltChunk& wire) {
  if (wire.source() > static_cast<uint32_t>(RebuiltChunk::Source::kCheckpoint)) {
    return absl::InvalidArgumentError(
        absl::StrCat("source of a chunk ", wire.source(), " is not known"));
  }
  return RebuiltChunk{.chunk = ChunkId{wire.chunk()},
                      .source = static_cast<RebuiltChunk::Source>(wire.source()),
                      .version = Step{wire.version()},
                      .checksum = wire.checksum()};
}

}  // namespace

void ToProto(const ShardCopies& message, v1::FromMember::ShardCopies& out) {
  out.set_round(message.round);
  out.set_shard(message.shard.value());
  for (const ChunkCopy& copy : message.chunks) {
    v1::FromMember::ChunkCopy& wire = *out.add_chunks();
    wire.set_chunk(copy.chunk.value());
    wire.set_kind(static_cast<uint32_t>(copy.kind));
    wire.set_version(copy.version.value());
    wire.set_known(copy.known.value());
    wire.set_checksum(copy.checksum);
  }
}

void ToProto(const Rebuilt& message, v1::FromMember::Rebuilt& out) {
  ToProto(message.shard, message.entry, *out.mutable_entry());
  ToProto(message.status, *out.mutable_status());
  out.set_has_optimizer_state(message.has_optimizer_state);
  if (message.state_step) out.set_state_step(message.state_step->value());
  out.set_state_problem(ToWireText(message.state_problem));
}

void ToProto(const CollectCopies& message, v1::ToMember::CollectCopies& out) {
  out.set_round(message.round);
  for (const auto& [shard, entry] : message.entries) ToProto(shard, entry, *out.add_entries());
}

void ToProto(const OfferCopies& message, v1::ToMember::OfferCopies& out) {
  ToProto(message.shard, message.entry, *out.mutable_entry());
  for (const ChunkId chunk : message.chunks) out.add_chunks(chunk.value());
}

void ToProto(const RebuildShard& message, v1::ToMember::RebuildShard& out) {
  ToProto(message.shard, message.entry, *out.mutable_entry());
  for (const RebuiltChunk& chunk : message.chunks) {
    v1::ToMember::RebuiltChunk& wire = *out.add_chunks();
    wire.set_chunk(chunk.chunk.value());
    wire.set_source(static_cast<uint32_t>(chunk.source));
    wire.set_version(chunk.version.value());
    wire.set_checksum(chunk.checksum);
  }
  out.set_checkpoints(ToWireText(message.checkpoints));
}

absl::StatusOr<FromMember> FromProto(const v1::FromMember::ShardCopies& wire) {
  PUSHPULL_RETURN_IF_ERROR(CheckCount("copies", wire.chunks_size(), kChunksOfShardMax));
  ShardCopies message{.round = wire.round(), .shard = {}, .chunks = {}};
  PUSHPULL_ASSIGN_OR_RETURN(message.shard, ShardFromProto(wire.shard()));
  for (const v1::FromMember::ChunkCopy& copy : wire.chunks()) {
    PUSHPULL_ASSIGN_OR_RETURN(const ChunkCopy read, Read(copy));
    message.chunks.push_back(read);
  }
  return message;
}

absl::StatusOr<FromMember> FromProto(const v1::FromMember::Rebuilt& wire) {
  PUSHPULL_ASSIGN_OR_RETURN(auto replicas, FromProto(wire.entry()));
  return Rebuilt{
      .shard = replicas.first,
      .entry = std::move(replicas.second),
      .status = FromProto(wire.status()),
      .has_optimizer_state = wire.has_optimizer_state(),
      .state_step = wire.has_state_step() ? std::optional<Step>(wire.state_step()) : std::nullopt,
      .state_problem = wire.state_problem()};
}

absl::StatusOr<ToMember> FromProto(const v1::ToMember::CollectCopies& wire) {
  CollectCopies message{.round = wire.round(), .entries = {}};
  PUSHPULL_ASSIGN_OR_RETURN(message.entries, FromProto(wire.entries()));
  return message;
}

absl::StatusOr<ToMember> FromProto(const v1::ToMember::OfferCopies& wire) {
  PUSHPULL_RETURN_IF_ERROR(CheckCount("chunks to offer", wire.chunks_size(), kChunksOfShardMax));
  PUSHPULL_ASSIGN_OR_RETURN(auto replicas, FromProto(wire.entry()));
  OfferCopies message{.shard = replicas.first, .entry = std::move(replicas.second), .chunks = {}};
  for (const uint64_t chunk : wire.chunks()) message.chunks.emplace_back(chunk);
  return message;
}

absl::StatusOr<ToMember> FromProto(const v1::ToMember::RebuildShard& wire) {
  PUSHPULL_RETURN_IF_ERROR(CheckCount("chunks to rebuild", wire.chunks_size(), kChunksOfShardMax));
  PUSHPULL_ASSIGN_OR_RETURN(auto replicas, FromProto(wire.entry()));
  RebuildShard message{.shard = replicas.first,
                       .entry = std::move(replicas.second),
                       .chunks = {},
                       .checkpoints = wire.checkpoints()};
  for (const v1::ToMember::RebuiltChunk& chunk : wire.chunks()) {
    PUSHPULL_ASSIGN_OR_RETURN(const RebuiltChunk read, Read(chunk));
    message.chunks.push_back(read);
  }
  return message;
}

}  // namespace pushpull
