// SPDX-License-Identifier: Apache-2.0
//
// Turns bytes, split anywhere, into frames. Small frames come from a staging buffer, many per read;
// a payload is received straight into the buffer that the sink provides. Does no I/O.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/transport/channel.h"
#include "runtime/transport/shm/payload_ring.h"
#include "runtime/transport/shm/shared_regions.h"

namespace pushpull {

// Receives frames. After a callback that closed or paused the stream, IsOpen returns false.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // As for FrameHandler::PayloadBuffer.
  virtual std::span<std::byte> PayloadBuffer(const FrameHeader& header) = 0;
  // As for FrameHandler::TakesInPlace.
  virtual bool TakesInPlace(const FrameHeader&) { return false; }
  virtual void OnFrame(const ReceivedFrame& frame) = 0;
  virtual bool IsOpen() const = 0;
};

//   header (128) -> meta -> payload -> header ...
//
// The caller asks for buffers, fills them in order and reports how much; the reader then calls the
// sink for every complete frame. Thread-compatible.
class FrameReader {
 public:
  // `sink` outlives the reader.
  explicit FrameReader(FrameSink& sink);

  // From the next frame on, payloads are not in the stream but in `ring`, or in `regions` for
  // frames with kFlagInRegion. Both outlive the reader.
  void UseRing(PayloadRingReader& ring, const SharedRegions& regions) {
    ring_ = &ring;
    regions_ = &regions;
  }

  // Buffers for the next bytes, in order: the rest of a payload, then the staging buffer. Never
  // empty; valid until the next call of any method.
  std::span<const iovec> NextBuffers();

  // `num_bytes` were written there at `now`. With zero, hands out frames that were read ahead while
  // the sink was not open. After an error the reader is unusable.
  //   kDataLoss, kUnimplemented  the stream is damaged or of a later version
  //   kInternal                  the sink's buffer has the wrong length
  absl::Status Consume(size_t num_bytes, SteadyTime now);

  // The frame whose payload is incomplete, after the sink was asked for its buffer; else null.
  const FrameHeader* UnfinishedPayload() const { return in_payload_ ? &header_ : nullptr; }

  // Bytes read beyond the frames that were handed out.
  size_t num_staged() const { return staged_end_ - staged_begin_; }

 private:
  // False: the frame's header and meta are incomplete.
  absl::StatusOr<bool> BeginFrame(SteadyTime now);
  // Finds the payload by the place at the end of the meta, and removes that place.
  absl::Status FindInRegion();
  absl::Status EndPayload(SteadyTime now);
  absl::Status TakeStaged(SteadyTime now);
  void TakePayload();
  bool receives_directly() const { return in_payload_ && !payload_.empty() && ring_ == nullptr; }
  iovec StagingSpace();

  static constexpr size_t kStagingBytes = 64 * 1024;

  FrameSink& sink_;
  PayloadRingReader* ring_ = nullptr;
  const SharedRegions* regions_ = nullptr;
  const std::unique_ptr<std::byte[]> staging_;
  size_t staged_begin_ = 0;
  size_t staged_end_ = 0;
  std::array<iovec, 2> buffers_{};

  FrameHeader header_;  // of the frame in progress, else of the previous one
  std::vector<std::byte> meta_;
  std::span<std::byte> payload_;  // the sink's buffer; empty if discarded
  Payload in_region_;             // in the peer's memory; empty if in ring or stream
  bool stays_in_place_ = false;   // the sink reads it there
  size_t payload_left_ = 0;
  bool in_payload_ = false;
};

}  // namespace pushpull
