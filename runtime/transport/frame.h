// SPDX-License-Identifier: Apache-2.0
//
// The frame: what travels on every data channel. A fixed header of 128 bytes with its own checksum,
// a short extension ("meta") and the payload, which is the bytes of at most one chunk. The header
// has room for everything the protocol will need, so that a reader of a later version can always
// tell what it does not understand. Layout and versioning: decisions/0002-frame-layout.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/tensor/codec.h"
#include "runtime/tensor/dtype.h"
#include "runtime/tensor/reduction.h"

namespace pushpull {

constexpr uint16_t kFrameVersion = 1;
constexpr size_t kFrameHeaderBytes = 128;
// Several chunks; a frame with more is refused before anything is allocated for it.
constexpr size_t kFramePayloadBytesMax = size_t{1} << 20;
constexpr size_t kFrameMetaBytesMax = 4096;

enum class FrameType : uint8_t {
  kHello = 1,     // first frame of a connection, by the side that connected
  kHelloAck = 2,  // its answer
  kPing = 3,      // worker -> server; echoed as kPong with the receiver's clock in meta
  kPong = 4,
  kInit = 5,       // worker -> primary: value of version 0, installed where there is none
  kPush = 6,       // worker -> primary: one contribution; answered by kPublished without payload
  kPull = 7,       // worker -> primary: wants version >= step; answered by kPublished
  kPushPull = 8,   // worker -> primary: kPush answered by kPublished with payload
  kPublished = 9,  // primary -> worker: `step` is the version; meta is a PublishedTiming
  kRefused = 10,   // primary -> worker: meta is a Refusal; the request will never be answered
  // Of replication and moves; metas are those of replication/replica_frame.h.
  kMoved = 11,         // server -> worker: not the primary; the request has to be sent to that one
  kJoinShard = 12,     // member -> primary: wants the log; payload is the stamps of all its chunks
  kStreamStart = 13,   // primary -> member: the stream begins
  kReplicate = 14,     // primary -> member: one log entry, its gradient or value as payload
  kCopyChunk = 15,     // primary -> member: a part of a chunk's state
  kCaughtUp = 16,      // primary -> member: everything that differed has been copied
  kReplicateAck = 17,  // member -> primary
  // worker -> primary: does not push the steps before `step` any more and wants that version or a
  // later one; answered by kPublished. Of workers that are not waited for (backup workers).
  kFetch = 18,
  // worker -> the server that makes the chunk's shard anew under `epoch`: the value of version
  // `step`. Not answered; repeated until an entry of that epoch is in force.
  kReturnCopy = 19,
  // Of gated steps (decisions/0019-gated-step.md).
  kHeld = 20,     // primary -> worker: has its contribution to `step`, until that is decided
  kDecided = 21,  // worker -> primary: the meta has who counts in `step`; not answered
  // Between channels, where payloads travel through shared memory: meta is how much of the sender's
  // ring has been read (shm/payload_ring.h).
  kCredit = 22,
  // Between channels that have such memory: how the ends come to share more of it
  // (shm/shared_regions.h).
  kRegion = 23,
};

constexpr bool IsPush(FrameType type) {
  return type == FrameType::kPush || type == FrameType::kPushPull;
}

// Whether the payload has a checksum is negotiated for each connection (architecture.md section 6).
constexpr uint8_t kFlagPayloadChecksum = 1;
// The meta has an admission (replication/admission_frame.h).
constexpr uint8_t kFlagAdmission = 2;
// Between channels: the payload lies in memory that both ends share, and the meta ends with where
// (shm/shared_regions.h). Handlers see neither.
constexpr uint8_t kFlagInRegion = 4;
// kPushPull: the value that is the answer may be left where the server has it. Until its next push
// of the chunk the worker may read it there.
constexpr uint8_t kFlagTakesInPlace = 8;

// All numbers are little-endian on the wire. Plain data, copied freely.
struct FrameHeader {
  FrameType type = FrameType::kPing;
  uint8_t flags = 0;
  Codec codec = Codec::kNone;  // of the payload; of pushes only
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kMean;
  uint8_t priority = 0;     // smaller goes first; the order of first use in the forward pass
  uint16_t meta_bytes = 0;  // filled in by the channel
  WorkerId worker;          // who contributes, or whom the answer is for
  Incarnation incarnation;
  Epoch epoch;  // of the shard's entry the sender knows
  ChunkId chunk;
  Step step;  // kPush: the step; kPull: the lowest version wanted; kPublished: the version
  double learning_rate = 0;  // kPush: in force for this step
  double weight = 1;         // kPush: samples behind this gradient
  uint64_t trace_id = 0;
  int64_t sent_at = 0;  // sender's steady clock, ns, when the first byte left; by the channel
  uint32_t payload_bytes = 0;     // filled in by the channel
  uint64_t payload_checksum = 0;  // XXH3-64 of the payload, if the flag says so; by the channel
  // kPull: the worker's clock, i.e. the number of its next step. kPublished: the number after that
  // of the push it answers; 0 for an answer to another request.
  Step clock;
  // kPush: the version that the gradient was computed with. kPull, kFetch: the number of this read,
  // which tells its answer from a late one to an earlier read. kPublished repeats it.
  Step base_version;
};

// Writes the header's 128 bytes, its own checksum included.
void EncodeFrameHeader(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out);

// The header, or why these bytes are none: kDataLoss for a wrong magic, checksum or an impossible
// field (the connection cannot be used any more), kUnimplemented for a newer version.
absl::StatusOr<FrameHeader> DecodeFrameHeader(std::span<const std::byte, kFrameHeaderBytes> bytes);

// XXH3-64, what header.payload_checksum holds.
uint64_t ChecksumPayload(std::span<const std::byte> payload);

// How long a contribution spent where on the server, sent with kPublished so that the worker can
// account for every phase of a step; and a digest of who contributed. Clocks are nanoseconds of the
// named side's steady clock.
struct PublishedTiming {
  int64_t push_sent_at = 0;     // worker's clock, echoed from the push; 0 for an answer to a pull
  int64_t received_at = 0;      // server's clock: the push had arrived whole
  int64_t server_queue_ns = 0;  // from there until it was looked at
  int64_t sum_ns = 0;           // adding this contribution, its checks included
  int64_t wait_ns = 0;          // for other contributors
  int64_t optimize_ns = 0;
  int64_t replicate_ns = 0;  // for the followers' acknowledgement
  int64_t published_at = 0;  // server's clock
  // Of the step that made the version, in every answer (consistency/uneven_steps.h); 0: not known.
  uint64_t contributors = 0;
};

constexpr size_t kPublishedTimingBytes = 9 * sizeof(int64_t);
std::vector<std::byte> EncodePublishedTiming(const PublishedTiming& timing);
absl::StatusOr<PublishedTiming> DecodePublishedTiming(std::span<const std::byte> meta);

// Why a request is refused, as a status: the code says what the worker should do (kAborted: refresh
// the table or rejoin; anything else: report), the text names chunk, step and worker.
std::vector<std::byte> EncodeRefusal(const absl::Status& status);
absl::Status DecodeRefusal(std::span<const std::byte> meta);

}  // namespace pushpull
