// SPDX-License-Identifier: Apache-2.0
//
// The path from this rank to one other: two byte streams, one per direction, which move at the same
// time. No call blocks; the communicator waits for all of its links at once.
#pragma once

#include <poll.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/file_descriptor.h"

namespace pushpull {

// What an end needs in order to continue.
struct LinkWants {
  bool bytes = false;  // from the peer
  bool room = false;   // for bytes to the peer
};

// Thread-compatible. Errors, after which the link cannot be used; their texts say what the peer has
// done, and the caller adds its name:
//   kUnavailable  the peer has closed the link, or its process or host is gone
//   kDataLoss     the peer breaks the rules of the link
class PeerLink {
 public:
  virtual ~PeerLink() = default;

  // Copies bytes from the front, as many as there is room for; returns how many, 0 for none.
  virtual absl::StatusOr<size_t> Send(std::span<const std::byte> bytes) = 0;
  // The bytes sent so far are a whole message: the peer calls EndReceived at the same place.
  virtual void EndSent() = 0;
  // Passes everything that Send has taken to the peer, and tells it what was consumed. Bytes
  // without room wait for the next call.
  virtual absl::Status Flush() = 0;
  // Also while exposed bytes are not read.
  virtual bool has_unsent() const = 0;

  // Whether the peer can read these bytes where they are: they are in memory that it shares.
  virtual bool CanExpose(std::span<const std::byte> /*bytes*/) const { return false; }
  // Like Send, but copies nothing: returns 0 or the number of all bytes, which the peer reads where
  // they are and which must not change until num_exposed_read() has counted them. Whole elements,
  // for which CanExpose holds; the message has no other bytes but a header.
  virtual absl::StatusOr<size_t> Expose(std::span<const std::byte> /*bytes*/) { return 0; }
  // Bytes since the link was made. Fails if the peer has gone without reading all.
  virtual absl::StatusOr<uint64_t> num_exposed_read() { return 0; }

  // Bytes that have arrived, in place: at least `least` and usually at most `most`, or none. Valid
  // until the next call of a method other than Send. At the beginning of a message aligned to 64
  // bytes, or as they are in the peer's array.
  virtual absl::StatusOr<std::span<const std::byte>> Peek(size_t least, size_t most) = 0;
  // Releases the first bytes that Peek returned.
  virtual void Consume(size_t num_bytes) = 0;
  // Copies bytes to the front of `into`; returns how many.
  virtual absl::StatusOr<size_t> Receive(std::span<std::byte> into) = 0;
  virtual void EndReceived() = 0;

  // Call before a wait: the peer then wakes this end when it can continue. Callers try once more
  // after that, because it may have become possible just before.
  virtual void Arm(LinkWants wants) = 0;
  virtual void Disarm() = 0;
  // The argument for poll, and the handler of its result.
  virtual pollfd WaitFor(LinkWants wants) const = 0;
  virtual void OnReady(short events) = 0;
  // Whether a try costs no system call, so that spinning briefly makes sense.
  virtual bool is_cheap_to_try() const = 0;
};

// All links of a rank.
struct LinkSet {
  std::vector<std::unique_ptr<PeerLink>> links;  // by rank; null for this one
  // An eventfd by which peers wake this rank; closed if no link needs it.
  FileDescriptor doorbell = {};
};

}  // namespace pushpull
