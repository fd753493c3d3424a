// SPDX-License-Identifier: Apache-2.0
//
// The metas of replication frames (docs/protocol.md section 2). shard_member.h decides what a frame
// means. Layout: docs/decisions/0008-replica-streams.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/consistency/uneven_steps.h"
#include "runtime/consistency/worker_clocks.h"
#include "runtime/replication/shard_member.h"
#include "runtime/replication/worker_bits.h"
#include "runtime/shard/shard_map.h"

namespace pushpull {

// The same for all frames of replication, so that they are sent in order.
inline constexpr uint8_t kReplicationPriority = 0;

// A shard's entry: the meta of kMoved, and the end of the meta of kPublished if the worker does not
// know the entry yet.
struct ShardEntry {
  ShardId shard;
  ReplicaSet entry;
};

std::vector<std::byte> EncodeShardEntry(const ShardEntry& entry);
// kDataLoss: too short, or the shard's number or the number of members is out of range.
absl::StatusOr<ShardEntry> DecodeShardEntry(std::span<const std::byte> meta);

// kJoinShard. The epoch of the joiner's entry is in the header.
struct JoinShardMeta {
  ShardId shard;
  uint64_t stream = 0;
  // The joiner was primary and has handed over: `entry` makes the receiver primary, and the
  // receiver has everything up to seq.
  bool is_handover = false;
  ReplicaSet entry;
  uint64_t seq = 0;
};

std::vector<std::byte> EncodeJoinShard(const JoinShardMeta& meta);
absl::StatusOr<JoinShardMeta> DecodeJoinShard(std::span<const std::byte> meta);

// The payload of kJoinShard: the stamps of the shard's chunks in the order of their ids.
std::vector<std::byte> EncodeStamps(std::span<const ChunkStamp> stamps);
// kDataLoss: not a whole number of stamps.
absl::StatusOr<std::vector<ChunkStamp>> DecodeStamps(std::span<const std::byte> payload);

// What a log entry does to its chunk.
enum class LogEntryKind : uint8_t {
  kInitialize = 1,  // the payload is the value of version 0
  kApply = 2,       // the payload is the step's reduced gradient before scaling
  kSkip = 3,        // the value stays; without a gradient that of Sum becomes zeros
  kAdvance = 4,     // the value stays and the version becomes `advance_to`
  kReplace = 5,     // the payload is the next value
};

// kStreamStart, kReplicate, kCopyChunk, kCaughtUp. Chunk, step (of an entry) or version (of a
// copy), learning rate and epoch are in the header.
struct StreamMeta {
  ShardId shard = {};
  StreamPosition at = {};
  uint64_t seq = 0;  // of the entry; of the primary's last one otherwise
  // kReplicate
  LogEntryKind kind = LogEntryKind::kApply;
  double gradient_scale = 1;
  // Ascending; indices below kWorkersMax. kCopyChunk of the leading chunk: those of the step that
  // made its version, if known.
  std::vector<WorkerId> contributors = {};
  // For a push applied by itself: its worker and that worker's clock. None otherwise.
  std::optional<WorkerClock> update = {};
  Step advance_to = {};  // kAdvance
  // kCopyChunk: the value, the optimizer state and the workers' clocks (EncodeClocks), in parts of
  // at most a frame's payload each; the clocks are the last part.
  uint32_t part = 0;
  uint32_t parts = 1;
  uint64_t updates = 0;  // optimizer steps done
  Epoch chunk_epoch;     // of the chunk's last entry
  // Who contributed to the version that the entry makes, or that the copy has; 0: unknown.
  ContributorsDigest digest = 0;
  // What clipping multiplied the gradient of that step by; 0: no clipping, or unknown.
  // gradient_scale includes it.
  double clip_scale = 0;
  // False: nobody had a gradient in that step, which is then a kSkip.
  bool has_gradient = true;
};

std::vector<std::byte> EncodeStreamMeta(const StreamMeta& meta);
absl::StatusOr<StreamMeta> DecodeStreamMeta(std::span<const std::byte> bytes);

// The last part of a copy.
std::vector<std::byte> EncodeClocks(std::span<const WorkerClock> clocks);
// kDataLoss: not a whole number of clocks.
absl::StatusOr<std::vector<WorkerClock>> DecodeClocks(std::span<const std::byte> payload);

// kReplicateAck.
struct ReplicateAckMeta {
  ShardId shard;
  StreamAck ack;
};

std::vector<std::byte> EncodeReplicateAck(const ReplicateAckMeta& meta);
absl::StatusOr<ReplicateAckMeta> DecodeReplicateAck(std::span<const std::byte> meta);

}  // namespace pushpull
