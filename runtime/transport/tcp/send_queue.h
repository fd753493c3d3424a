// SPDX-License-Identifier: Apache-2.0
//
// Frames waiting for a socket: the most urgent first, and as many small ones as fit into one call.
// A frame whose first byte is out is finished before any other. Does no I/O.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/deadline.h"
#include "runtime/transport/frame_queue.h"
#include "runtime/transport/shm/payload_ring.h"
#include "runtime/transport/shm/shared_regions.h"

namespace pushpull {

// Thread-compatible.
class SendQueue {
 public:
  explicit SendQueue(size_t frames_max) : waiting_(frames_max) {}

  // For frames that begin from now on.
  void SetPayloadChecksums(bool has_checksums) { has_checksums_ = has_checksums; }

  // From now on payloads go into `ring`, unless they are settled and in `regions` already, and only
  // the rest into the stream. Both outlive the queue. No frame may have begun.
  void UseRing(PayloadRingWriter& ring, const SharedRegions& regions);
  // Tells the peer that this much of its ring has been read, before all that waits: it may be
  // waiting for that, and this side for it.
  void PushCredit(uint64_t num_bytes, SteadyTime now);

  // As FrameQueue::Push.
  absl::Status Push(OutgoingFrame frame) { return waiting_.Push(std::move(frame)); }

  bool empty() const { return !begun_ && num_staged() == 0 && waiting_.empty(); }
  size_t num_bytes() const;

  // What to write next: the rest of the frame that has begun, then waiting frames in order, up to a
  // batch. `now` becomes the sent_at of those that begin. Valid until the next call of any method.
  // Empty although frames wait: they wait for room in the ring.
  std::span<const iovec> NextBuffers(SteadyTime now);
  // The first `num_bytes` of that have been written; at most what was given. Frames that are
  // through give up their payload.
  void Consume(size_t num_bytes);

  void Clear();

 private:
  using HeaderBytes = std::array<std::byte, kFrameHeaderBytes>;
  struct Begun {
    OutgoingFrame frame;
    HeaderBytes header;
    size_t bytes_written = 0;
  };

  void Prepare(OutgoingFrame& frame, SteadyTime now, HeaderBytes& header) const;
  std::span<const iovec> NextOverRing(SteadyTime now);
  void Stage(OutgoingFrame& frame, SteadyTime now);
  // The frame's payload need not be copied: its meta says where it is.
  bool RefersToRegion(OutgoingFrame& frame) const;
  size_t num_staged() const { return staged_.size() - staged_written_; }
  void Append(const OutgoingFrame& frame, const HeaderBytes& header, size_t skip);

  // A batch takes frames until it has this many bytes or frames: enough to make the system call
  // cheap, as measured for 4 KiB frames.
  static constexpr size_t kBatchBytes = 256 * 1024;
  static constexpr size_t kBatchFrames = 32;
  // Over a ring, while the socket takes no more.
  static constexpr size_t kStagedBytesMax = 64 * 1024;

  bool has_checksums_ = false;
  FrameQueue waiting_;
  std::optional<Begun> begun_;
  std::array<HeaderBytes, kBatchFrames> headers_;  // of the waiting frames in the batch
  std::vector<iovec> buffers_;

  // Frames whose payload is in the ring: what of them goes over the stream.
  PayloadRingWriter* ring_ = nullptr;
  const SharedRegions* regions_ = nullptr;
  std::vector<std::byte> staged_;
  size_t staged_written_ = 0;
};

}  // namespace pushpull
