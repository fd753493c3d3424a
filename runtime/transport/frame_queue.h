// SPDX-License-Identifier: Apache-2.0
//
// Frames that wait to be sent: most urgent first, equal priorities in FIFO order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "absl/status/status.h"

#include "runtime/transport/channel.h"

namespace pushpull {

// The bytes of a frame on the wire.
inline size_t WireBytes(const OutgoingFrame& frame) {
  return kFrameHeaderBytes + frame.meta.size() + frame.payload.bytes.size();
}

// Encodes the header of a frame whose first byte is about to leave, at `now`. A payload's checksum
// is computed only once: a frame that the connection did not take is passed here again.
void EncodeHead(OutgoingFrame& frame,
                SteadyTime now,
                bool has_checksums,
                std::span<std::byte, kFrameHeaderBytes> out);

// Bounded. Thread-compatible.
class FrameQueue {
 public:
  explicit FrameQueue(size_t frames_max) : frames_max_(frames_max) {}

  // Fills in the lengths in the frame's header and clears its payload checksum.
  //   kResourceExhausted  frames_max frames are already waiting
  //   kInvalidArgument    meta or payload are longer than a frame may carry
  absl::Status Push(OutgoingFrame frame);

  // The next frame; there must be one.
  const OutgoingFrame& front() const { return by_priority_.begin()->second.front(); }
  OutgoingFrame Pop();

  // Calls `visit` with frames, in the order of Pop, until it returns false. `visit` may change a
  // frame, except its priority and lengths.
  template <typename Visit>
  void ForEach(Visit visit) {
    for (auto& [priority, frames] : by_priority_) {
      for (OutgoingFrame& frame : frames) {
        if (!visit(frame)) return;
      }
    }
  }

  size_t frames_max() const { return frames_max_; }
  bool empty() const { return num_frames_ == 0; }
  size_t num_frames() const { return num_frames_; }
  size_t num_bytes() const { return num_bytes_; }
  void Clear();

 private:
  const size_t frames_max_;
  size_t num_frames_ = 0;
  size_t num_bytes_ = 0;
  std::map<uint8_t, std::deque<OutgoingFrame>> by_priority_;  // no empty ones
};

}  // namespace pushpull
