// SPDX-License-Identifier: Apache-2.0
#include "runtime/replication/replica_frame.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/wire_bytes.h"

namespace pushpull {
namespace {

// Followers and learners of one shard; real sets have a handful.
constexpr uint16_t kMembersMax = 64;
constexpr size_t kStampBytes = 3 * sizeof(uint64_t);
constexpr size_t kClockBytes = sizeof(uint32_t) + sizeof(uint64_t);

absl::Status Malformed(absl::string_view what, size_t num_bytes) {
  return absl::DataLossError(absl::StrCat(what, ": its ", num_bytes, " bytes are not well formed"));
}

void Put(ByteWriter& writer, Epoch epoch) {
  writer.Put(epoch.term.value());
  writer.Put(epoch.counter);
}

Epoch GetEpoch(ByteReader& reader) {
  const Term term{reader.Get<uint64_t>()};
  return {term, reader.Get<uint64_t>()};
}

void Put(ByteWriter& writer, const std::vector<ServerId>& servers) {
  writer.Put(static_cast<uint16_t>(servers.size()));
  for (const ServerId server : servers) writer.Put(server.value());
}

// False: more than kMembersMax.
bool Get(ByteReader& reader, std::vector<ServerId>& servers) {
  const auto count = reader.Get<uint16_t>();
  if (count > kMembersMax) return false;
  for (uint16_t i = 0; i < count; ++i) servers.emplace_back(reader.Get<uint32_t>());
  return true;
}

void Put(ByteWriter& writer, const ReplicaSet& entry) {
  Put(writer, entry.epoch);
  writer.Put(static_cast<uint8_t>(entry.primary.has_value()));
  writer.Put(entry.primary.value_or(ServerId{}).value());
  Put(writer, entry.followers);
  Put(writer, entry.learners);
}

bool Get(ByteReader& reader, ReplicaSet& entry) {
  entry.epoch = GetEpoch(reader);
  const bool has_primary = reader.Get<uint8_t>() != 0;
  const ServerId primary{reader.Get<uint32_t>()};
  if (has_primary) entry.primary = primary;
  return Get(reader, entry.followers) && Get(reader, entry.learners) && reader.ok();
}

void Put(ByteWriter& writer, const WorkerClock& clock) {
  writer.Put(clock.worker.value());
  writer.Put(clock.clock.value());
}

WorkerClock GetClock(ByteReader& reader) {
  const WorkerId worker{reader.Get<uint32_t>()};
  return {worker, Step{reader.Get<uint64_t>()}};
}

bool Get(ByteReader& reader, ShardId& shard) {
  shard = ShardId{reader.Get<uint32_t>()};
  return reader.ok() && IsShard(shard);
}

}  // namespace

std::vector<std::byte> EncodeShardEntry(const ShardEntry& entry) {
  ByteWriter writer;
  writer.Put(entry.shard.value());
  Put(writer, entry.entry);
  return writer.Take();
}

absl::StatusOr<ShardEntry> DecodeShardEntry(std::span<const std::byte> meta) {
  ByteReader reader(meta);
  ShardEntry decoded;
  if (!Get(reader, decoded.shard) || !Get(reader, decoded.entry))
    return Malformed("entry of a shard", meta.size());
  return decoded;
}

std::vector<std::byte> EncodeJoinShard(const JoinShardMeta& meta) {
  ByteWriter writer;
  writer.Put(meta.shard.value());
  writer.Put(meta.stream);
  writer.Put(static_cast<uint8_t>(meta.is_handover));
  writer.Put(meta.seq);
  if (meta.is_handover) Put(writer, meta.entry);
  return writer.Take();
}

absl::StatusOr<JoinShardMeta> DecodeJoinShard(std::span<const std::byte> meta) {
  ByteReader reader(meta);
  JoinShardMeta decoded;
  bool is_ok = Get(reader, decoded.shard);
  decoded.stream = reader.Get<uint64_t>();
  decoded.is_handover = reader.Get<uint8_t>() != 0;
  decoded.seq = reader.Get<uint64_t>();
  if (decoded.is_handover) is_ok = is_ok && Get(reader, decoded.entry);
  if (!is_ok || !reader.ok()) return Malformed("request to join a shard", meta.size());
  return decoded;
}

std::vector<std::byte> EncodeStamps(std::span<const ChunkStamp> stamps) {
  ByteWriter writer;
  for (const ChunkStamp& stamp : stamps) {
    writer.Put(stamp.version.value());
    Put(writer, stamp.epoch);
  }
  return writer.Take();
}

absl::StatusOr<std::vector<ChunkStamp>> DecodeStamps(std::span<const std::byte> payload) {
  if (payload.size() % kStampBytes != 0) return Malformed("stamps of chunks", payload.size());
  ByteReader reader(payload);
  std::vector<ChunkStamp> stamps(payload.size() / kStampBytes);
  for (ChunkStamp& stamp : stamps) {
    stamp.version = Step{reader.Get<uint64_t>()};
    stamp.epoch = GetEpoch(reader);
  }
  return stamps;
}

std::vector<std::byte> EncodeStreamMeta(const StreamMeta& meta) {
  ByteWriter writer;
  writer.Put(meta.shard.value());
  writer.Put(meta.at.stream);
  writer.Put(meta.at.position);
  writer.Put(meta.seq);
  writer.Put(static_cast<uint8_t>(meta.kind));
  writer.Put(meta.gradient_scale);
  writer.Put(meta.part);
  writer.Put(meta.parts);
  writer.Put(meta.updates);
  Put(writer, meta.chunk_epoch);
  PutWorkerBits(meta.contributors, writer);
  writer.Put(static_cast<uint8_t>(meta.update.has_value()));
  if (meta.update) Put(writer, *meta.update);
  writer.Put(meta.advance_to.value());
  writer.Put(meta.digest);
  writer.Put(meta.clip_scale);
  writer.Put(static_cast<uint8_t>(meta.has_gradient));
  return writer.Take();
}

absl::StatusOr<StreamMeta> DecodeStreamMeta(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  StreamMeta decoded;
  const bool is_shard = Get(reader, decoded.shard);
  decoded.at.stream = reader.Get<uint64_t>();
  decoded.at.position = reader.Get<uint64_t>();
  decoded.seq = reader.Get<uint64_t>();
  decoded.kind = static_cast<LogEntryKind>(reader.Get<uint8_t>());
  decoded.gradient_scale = reader.Get<double>();
  decoded.part = reader.Get<uint32_t>();
  decoded.parts = reader.Get<uint32_t>();
  decoded.updates = reader.Get<uint64_t>();
  decoded.chunk_epoch = GetEpoch(reader);
  if (!GetWorkerBits(reader, decoded.contributors))
    return Malformed("frame of a shard's log", bytes.size());
  if (reader.Get<uint8_t>() != 0) decoded.update = GetClock(reader);
  decoded.advance_to = Step{reader.Get<uint64_t>()};
  decoded.digest = reader.Get<uint64_t>();
  decoded.clip_scale = reader.Get<double>();
  decoded.has_gradient = reader.Get<uint8_t>() != 0;
  const bool is_kind =
      decoded.kind >= LogEntryKind::kInitialize && decoded.kind <= LogEntryKind::kReplace;
  if (!is_shard || !is_kind || !reader.ok())
    return Malformed("frame of a shard's log", bytes.size());
  return decoded;
}

std::vector<std::byte> EncodeClocks(std::span<const WorkerClock> clocks) {
  ByteWriter writer;
  for (const WorkerClock& clock : clocks) Put(writer, clock);
  return writer.Take();
}

absl::StatusOr<std::vector<WorkerClock>> DecodeClocks(std::span<const std::byte> payload) {
  if (payload.size() % kClockBytes != 0) return Malformed("clocks of workers", payload.size());
  ByteReader reader(payload);
  std::vector<WorkerClock> clocks(payload.size() / kClockBytes);
  for (WorkerClock& clock : clocks) clock = GetClock(reader);
  return clocks;
}

std::vector<std::byte> EncodeReplicateAck(const ReplicateAckMeta& meta) {
  ByteWriter writer;
  writer.Put(meta.shard.value());
  writer.Put(meta.ack.at.stream);
  writer.Put(meta.ack.at.position);
  writer.Put(static_cast<uint8_t>(meta.ack.seq.has_value()));
  writer.Put(meta.ack.seq.value_or(0));
  writer.Put(static_cast<uint8_t>(meta.ack.is_caught_up));
  return writer.Take();
}

absl::StatusOr<ReplicateAckMeta> DecodeReplicateAck(std::span<const std::byte> meta) {
  ByteReader reader(meta);
  ReplicateAckMeta decoded;
  const bool is_shard = Get(reader, decoded.shard);
  decoded.ack.at.stream = reader.Get<uint64_t>();
  decoded.ack.at.position = reader.Get<uint64_t>();
  const bool has_seq = reader.Get<uint8_t>() != 0;
  const auto seq = reader.Get<uint64_t>();
  if (has_seq) decoded.ack.seq = seq;
  decoded.ack.is_caught_up = reader.Get<uint8_t>() != 0;
  if (!is_shard || !reader.ok()) return Malformed("acknowledgement", meta.size());
  return decoded;
}

}  // namespace pushpull
