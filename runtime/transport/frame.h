// SPDX-License-Identifier: Apache-2.0
//
// The frame, the unit of every data channel: a fixed header of 128 bytes with its own checksum, a
// short extension ("meta") and the payload, which is the bytes of at most one chunk. The header's
// size never changes, so that a reader can always recognize a version it does not know. Layout and
// versioning: docs/decisions/0002-frame-layout.md.
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
// Several chunks. A frame with more is rejected before anything is allocated for it.
constexpr size_t kFramePayloadBytesMax = size_t{1} << 20;
constexpr size_t kFrameMetaBytesMax = 4096;

enum class FrameType : uint8_t {
  kHello = 1,     // first frame of a connection, by the side that connected
  kHelloAck = 2,  // its answer
  kPing = 3,      // worker -> server; echoed as kPong with the receiver's clock in meta
  kPong = 4,
  // worker -> primary: value of version 0, installed unless there is one; followed by the
  // optimizer's state if it continues from an earlier one
  kInit = 5,
  kPush = 6,       // worker -> primary: one contribution; answered by kPublished without payload
  kPull = 7,       // worker -> primary: requests version >= step; answered by kPublished
  kPushPull = 8,   // worker -> primary: kPush answered by kPublished with payload
  kPublished = 9,  // primary -> worker: `step` is the version; meta is a PublishedTiming
  kRefused = 10,   // primary -> worker: meta is a Refusal; the request will never be answered
  // Replication and moves; metas are in replication/replica_frame.h.
  kMoved = 11,         // server -> worker: not the primary; send the request to that one
  kJoinShard = 12,     // member -> primary: requests the log; payload: stamps of all its chunks
  kStreamStart = 13,   // primary -> member: the stream begins
  kReplicate = 14,     // primary -> member: one log entry, its gradient or value as payload
  kCopyChunk = 15,     // primary -> member: a part of a chunk's state
  kCaughtUp = 16,      // primary -> member: everything that differed has been copied
  kReplicateAck = 17,  // member -> primary
  // worker -> primary: no longer pushes steps before `step` and requests that version or a later
  // one; answered by kPublished. Sent where steps do not wait for all workers (backup workers).
  kFetch = 18,
  // worker -> the server that rebuilds the chunk's shard under `epoch`: the value of version
  // `step`. Not answered; repeated until an entry of that epoch is in effect.
  kReturnCopy = 19,
  // Gated steps (docs/decisions/0019-gated-step.md).
  kHeld = 20,     // primary -> worker: holds its contribution to `step` until that is decided
  kDecided = 21,  // worker -> primary: the meta names who counts in `step`; not answered
  // Between channels with shared memory: meta is the number of bytes of the sender's ring that were
  // read (shm/payload_ring.h).
  kCredit = 22,
  // Between channels with shared memory: messages with which the ends share more of it
  // (shm/shared_regions.h).
  kRegion = 23,
  // Clipping by the global norm (docs/decisions/0053-clipping-by-the-global-norm.md).
  kSquares = 24,  // primary -> worker: `step` is complete except for its scale; asks for that
  kScale = 25,    // worker -> primary: the scale of `step`; not answered
  // Collectives and messages between workers (exchange/exchange_frame.h).
  kExchange = 26,   // worker -> primary: a contribution to a piece, or the piece's result
  kExchanged = 27,  // primary -> worker: its answer
};

constexpr bool IsPush(FrameType type) {
  return type == FrameType::kPush || type == FrameType::kPushPull;
}

// Whether the payload has a checksum is negotiated for each connection (docs/architecture.md
// section 6).
constexpr uint8_t kFlagPayloadChecksum = 1;
// The meta has an admission (replication/admission_frame.h).
constexpr uint8_t kFlagAdmission = 2;
// Between channels: the payload is in shared memory, at the place given at the end of the meta
// (shm/shared_regions.h). Handlers see neither.
constexpr uint8_t kFlagInRegion = 4;
// kPushPull: the server may answer with a reference to its own memory, which the worker may read
// until its next push of the chunk.
constexpr uint8_t kFlagTakesInPlace = 8;
// kPull: requests the optimizer's state instead of the value. kPublished: the payload is that
// state, and the meta has the optimizer's updates after the admission.
constexpr uint8_t kFlagOptimizerState = 16;
// kPush, kPushPull: counts for several workers, which the meta lists (replication/joint_frame.h).
constexpr uint8_t kFlagJoint = 32;
// kPush, kPushPull: the worker has no gradient in this step; there is no payload. kPublished:
// nobody had one in the step that made the version. kReturnCopy: the same, of the copy
// (docs/decisions/0092-pushes-without-a-gradient.md).
constexpr uint8_t kFlagNoGradient = 64;

// All numbers are little-endian on the wire. Plain data, copied freely.
struct FrameHeader {
  FrameType type = FrameType::kPing;
  uint8_t flags = 0;
  Codec codec = Codec::kNone;  // of the payload; only in pushes
  DType dtype = DType::kFloat32;
  Reduction reduction = Reduction::kMean;
  uint8_t priority = 0;     // smaller is sent first; order of first use in the forward pass
  uint16_t meta_bytes = 0;  // filled in by the channel
  WorkerId worker;          // the contributor, or the receiver of the answer
  Incarnation incarnation;
  Epoch epoch;  // of the shard's entry the sender knows
  ChunkId chunk;
  Step step;  // kPush: the step; kPull: the lowest version to answer; kPublished: the version
  double learning_rate = 0;  // kPush: for this step
  // kPush: samples behind this gradient. kSquares: the sum of squares of the chunk's reduced
  // gradient. kScale: the factor by which clipping scales the gradient, 0 to 1. kPublished: the
  // same, of the step that made the version; 0: none, or unknown.
  double weight = 1;
  uint64_t trace_id = 0;
  int64_t sent_at = 0;  // sender's steady clock, ns, when the first byte left; by the channel
  uint32_t payload_bytes = 0;     // filled in by the channel
  uint64_t payload_checksum = 0;  // XXH3-64 of the payload, if the flag says so; by the channel
  // kPull: the worker's clock, i.e. the number of its next step. kPublished: one more than the
  // number of the push it answers; 0 for answers to other requests.
  Step clock;
  // kPush: the version that the gradient was computed with. kPull, kFetch: the number of this read,
  // which distinguishes its answer from a late one to an earlier read. kInit: the number of updates
  // in the optimizer's state. kPublished repeats it.
  Step base_version;
};

// A contribution of zeros, which has no payload.
constexpr bool IsWithoutGradient(const FrameHeader& header) {
  return IsPush(header.type) && (header.flags & kFlagNoGradient) != 0;
}

// Of kPublished and kReturnCopy: somebody had a gradient in the step that made the version.
constexpr bool HadGradient(const FrameHeader& header) {
  return (header.flags & kFlagNoGradient) == 0;
}

// Writes the header's 128 bytes, including its own checksum.
void EncodeFrameHeader(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out);

// After an error the connection is unusable.
//   kDataLoss       wrong magic or checksum, or a field out of range
//   kUnimplemented  a newer version of the frame
absl::StatusOr<FrameHeader> DecodeFrameHeader(std::span<const std::byte, kFrameHeaderBytes> bytes);

// XXH3-64, what header.payload_checksum holds.
uint64_t ChecksumPayload(std::span<const std::byte> payload);

// How long a contribution spent in each phase on the server, and a digest of the contributors. Sent
// with kPublished, so that the worker can account for every phase of a step. Clocks are nanoseconds
// of the named side's steady clock.
struct PublishedTiming {
  int64_t push_sent_at = 0;     // worker's clock, echoed from the push; 0 for an answer to a pull
  int64_t received_at = 0;      // server's clock: the push was complete
  int64_t server_queue_ns = 0;  // from there until it was processed
  int64_t sum_ns = 0;           // adding this contribution, its checks included
  int64_t wait_ns = 0;          // for other contributors
  int64_t optimize_ns = 0;
  int64_t replicate_ns = 0;  // for the followers' acknowledgement
  int64_t published_at = 0;  // server's clock
  // Digest for the step that made the version, in every answer (consistency/uneven_steps.h); 0:
  // unknown.
  uint64_t contributors = 0;
};

constexpr size_t kPublishedTimingBytes = 9 * sizeof(int64_t);
std::vector<std::byte> EncodePublishedTiming(const PublishedTiming& timing);
absl::StatusOr<PublishedTiming> DecodePublishedTiming(std::span<const std::byte> meta);

// Why a request is rejected, as a status. The text names chunk, step and worker; the worker's
// action:
//   kAborted  refresh the shard table or rejoin
//   other     report it
std::vector<std::byte> EncodeRefusal(const absl::Status& status);
absl::Status DecodeRefusal(std::span<const std::byte> meta);

}  // namespace pushpull
