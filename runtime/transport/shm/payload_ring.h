// SPDX-License-Identifier: Apache-2.0
//
// A ring of payloads in memory that two processes share. Headers and metas go over a socket in
// frame order, so both ends compute where each payload is: no position, length or flag is ever read
// from the shared memory, which the peer could change. Does no I/O.
//
//   sender:    Fits -> Write -> header over the socket
//   receiver:  header from the socket -> Read -> TakeCredit over the socket -> sender: AddCredit
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace pushpull {

// Room for four of the largest payloads: with two in flight each end copies while the other does.
constexpr size_t kPayloadRingBytes = size_t{4} << 20;

// The positions of payloads in a ring: one after the other, each contiguous. A payload that does
// not fit before the end starts at the front. Thread-compatible.
class PayloadPositions {
 public:
  struct Place {
    size_t offset = 0;
    size_t num_taken = 0;  // bytes of the ring: the payload, padding and an unused end
  };
  // For a payload of `num_bytes`, at most kFramePayloadBytesMax.
  Place Next(size_t num_bytes) const;
  void Take(const Place& place);

 private:
  size_t position_ = 0;
};

// Thread-compatible.
class PayloadRingWriter {
 public:
  // `memory` has kPayloadRingBytes and outlives the writer.
  explicit PayloadRingWriter(std::span<std::byte> memory) : memory_(memory) {}

  bool Fits(size_t num_bytes) const;
  // Writes the payload of the next frame; it must fit.
  void Write(std::span<const std::byte> payload);
  // The next frame's payload is elsewhere in shared memory. It takes room as if it were here, so
  // that the ring still bounds the number of bytes that an urgent frame waits for.
  void Skip(size_t num_bytes);
  // The receiver has read `num_bytes`. kDataLoss: more than was written.
  absl::Status AddCredit(uint64_t num_bytes);

 private:
  const std::span<std::byte> memory_;
  PayloadPositions positions_;
  size_t num_used_ = 0;
};

// Thread-compatible.
class PayloadRingReader {
 public:
  // As for the writer.
  explicit PayloadRingReader(std::span<const std::byte> memory) : memory_(memory) {}

  // Copies the next frame's payload to `to`, or drops it if `to` is empty. A peer that writes at
  // the same time corrupts only its own payload.
  void Read(size_t num_bytes, std::span<std::byte> to);
  // The next frame's payload is not here, as for the writer.
  void Skip(size_t num_bytes);
  // The credit to return to the sender now; mostly 0, so that credit costs few frames.
  uint64_t TakeCredit();

 private:
  const std::span<const std::byte> memory_;
  PayloadPositions positions_;
  uint64_t num_read_ = 0;  // credit not returned yet
};

}  // namespace pushpull
