// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/frame_queue.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/transport/peer_clock.h"

namespace pushpull {

void EncodeHead(OutgoingFrame& frame,
                SteadyTime now,
                bool has_checksums,
                std::span<std::byte, kFrameHeaderBytes> out) {
  frame.header.sent_at = NanosecondsOf(now);
  const bool lacks_checksum = has_checksums && (frame.header.flags & kFlagPayloadChecksum) == 0;
  if (lacks_checksum && !frame.payload.bytes.empty()) {
    frame.header.flags |= kFlagPayloadChecksum;
    frame.header.payload_checksum = ChecksumPayload(frame.payload.bytes);
  }
  EncodeFrameHeader(frame.header, out);
}

absl::Status FrameQueue::Push(OutgoingFrame frame) {
  if (frame.meta.size() > kFrameMetaBytesMax ||
      frame.payload.bytes.size() > kFramePayloadBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a frame with %d bytes of meta and %d of payload; it may have %d and %d",
                        frame.meta.size(),
                        frame.payload.bytes.size(),
                        kFrameMetaBytesMax,
                        kFramePayloadBytesMax));
  }
  if (num_frames_ >= frames_max_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("has stopped reading: ", num_frames_, " frames are queued for it"));
  }
  frame.header.meta_bytes = static_cast<uint16_t>(frame.meta.size());
  frame.header.payload_bytes = static_cast<uint32_t>(frame.payload.bytes.size());
  // An answer often starts as a copy of its request's header, whose flags describe another payload.
  constexpr uint8_t kOfPayload = kFlagPayloadChecksum | kFlagInRegion;
  frame.header.flags = static_cast<uint8_t>(frame.header.flags & ~kOfPayload);
  frame.header.payload_checksum = 0;
  ++num_frames_;
  num_bytes_ += WireBytes(frame);
  by_priority_[frame.header.priority].push_back(std::move(frame));
  return absl::OkStatus();
}

OutgoingFrame FrameQueue::Pop() {
  const auto urgent = by_priority_.begin();
  OutgoingFrame frame = std::move(urgent->second.front());
  urgent->second.pop_front();
  if (urgent->second.empty()) by_priority_.erase(urgent);
  --num_frames_;
  num_bytes_ -= WireBytes(frame);
  return frame;
}

void FrameQueue::Clear() {
  by_priority_.clear();
  num_frames_ = 0;
  num_bytes_ = 0;
}

}  // namespace pushpull
