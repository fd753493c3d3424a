// SPDX-License-Identifier: Apache-2.0
//
// Frames that wait for a socket: most urgent first, many small ones in one system call. A frame
// whose first byte was written is finished before any other. Does no I/O.
//
//   plain:     FrameQueue -> headers_ + meta + payload as iovecs -> partly written: begun_
//   over ring: FrameQueue -> payload copied to the ring; header + meta -> staged_ -> iovec
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "pushpull/deadline.h"

#include "runtime/transport/frame_queue.h"
#include "runtime/transport/shm/payload_ring.h"
#include "runtime/transport/shm/shared_regions.h"

namespace pushpull {

// Thread-compatible.
class SendQueue {
 public:
  explicit SendQueue(size_t frames_max) : waiting_(frames_max) {}

  // For frames started from now on.
  void SetPayloadChecksums(bool has_checksums) { has_checksums_ = has_checksums; }

  // From now on payloads go into `ring`, unless they are settled and in `regions`, and only headers
  // and metas into the stream. Both outlive the queue. No frame may have been started.
  void UseRing(PayloadRingWriter& ring, const SharedRegions& regions);
  // Returns `num_bytes` of credit to the peer, ahead of all waiting frames: the peer may wait for
  // room in its ring while this side waits for the peer.
  void PushCredit(uint64_t num_bytes, SteadyTime now);

  // As for FrameQueue::Push.
  absl::Status Push(OutgoingFrame frame) { return waiting_.Push(std::move(frame)); }

  bool empty() const { return !begun_ && num_staged() == 0 && waiting_.empty(); }
  size_t num_bytes() const;

  // What to write next: the rest of a started frame, then waiting frames in order, up to a batch.
  // `now` becomes the sent_at of newly started ones. Valid until the next call of any method. If
  // empty although frames wait, they wait for room in the ring.
  std::span<const iovec> NextBuffers(SteadyTime now);
  // The first `num_bytes` of these buffers were written. Completely written frames release their
  // payload.
  void Consume(size_t num_bytes);

  void Clear();

 private:
  using HeaderBytes = std::array<std::byte, kFrameHeaderBytes>;
  struct Begun {
    OutgoingFrame frame;
    HeaderBytes header;
    size_t bytes_written = 0;
  };

  std::span<const iovec> NextOverRing(SteadyTime now);
  void Stage(OutgoingFrame& frame, SteadyTime now);
  // True: the payload is not copied; the frame's meta says where it is.
  bool RefersToRegion(OutgoingFrame& frame) const;
  size_t num_staged() const { return staged_.size() - staged_written_; }
  void Append(const OutgoingFrame& frame, const HeaderBytes& header, size_t skip);

  // A batch ends when it reaches this many bytes or frames: enough to amortize the system call, as
  // measured with frames of 4 KiB.
  static constexpr size_t kBatchBytes = 256 * 1024;
  static constexpr size_t kBatchFrames = 32;
  // Over a ring: the number of bytes that may be staged while the socket takes no more.
  static constexpr size_t kStagedBytesMax = 64 * 1024;

  bool has_checksums_ = false;
  FrameQueue waiting_;
  std::optional<Begun> begun_;
  std::array<HeaderBytes, kBatchFrames> headers_;  // of the waiting frames in the batch
  std::vector<iovec> buffers_;

  // Headers and metas of frames whose payload is already in the ring.
  PayloadRingWriter* ring_ = nullptr;
  const SharedRegions* regions_ = nullptr;
  std::vector<std::byte> staged_;
  size_t staged_written_ = 0;
};

}  // namespace pushpull
