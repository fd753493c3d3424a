// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/send_queue.h"

#include <algorithm>
#include <utility>

namespace pushpull {

size_t SendQueue::num_bytes() const {
  return waiting_.num_bytes() + (begun_ ? WireBytes(begun_->frame) - begun_->bytes_written : 0);
}

void SendQueue::Prepare(OutgoingFrame& frame, SteadyTime now, HeaderBytes& header) const {
  frame.header.sent_at =
      std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
  // A frame that was offered before and not taken has its checksum already.
  const bool lacks_checksum = has_checksums_ && (frame.header.flags & kFlagPayloadChecksum) == 0;
  if (lacks_checksum && !frame.payload.bytes.empty()) {
    frame.header.flags |= kFlagPayloadChecksum;
    frame.header.payload_checksum = ChecksumPayload(frame.payload.bytes);
  }
  EncodeFrameHeader(frame.header, header);
}

void SendQueue::Append(const OutgoingFrame& frame, const HeaderBytes& header, size_t skip) {
  for (std::span<const std::byte> part : {std::span<const std::byte>(header),
                                          std::span<const std::byte>(frame.meta),
                                          frame.payload.bytes}) {
    const size_t skipped = std::min(skip, part.size());
    skip -= skipped;
    part = part.subspan(skipped);
    // An iovec is not const because readv writes to it; sendmsg does not.
    if (!part.empty()) buffers_.push_back({const_cast<std::byte*>(part.data()), part.size()});
  }
}

std::span<const iovec> SendQueue::NextBuffers(SteadyTime now) {
  buffers_.clear();
  size_t num_bytes = 0;
  if (begun_) {
    num_bytes = WireBytes(begun_->frame) - begun_->bytes_written;
    Append(begun_->frame, begun_->header, begun_->bytes_written);
  }
  size_t num_frames = 0;
  waiting_.ForEach([&](OutgoingFrame& frame) {
    if (num_bytes >= kBatchBytes || num_frames == kBatchFrames) return false;
    HeaderBytes& header = headers_[num_frames++];
    Prepare(frame, now, header);
    Append(frame, header, 0);
    num_bytes += WireBytes(frame);
    return true;
  });
  return buffers_;
}

void SendQueue::Consume(size_t num_bytes) {
  if (begun_) {
    const size_t part = std::min(num_bytes, WireBytes(begun_->frame) - begun_->bytes_written);
    begun_->bytes_written += part;
    num_bytes -= part;
    if (begun_->bytes_written == WireBytes(begun_->frame)) begun_.reset();
  }
  for (size_t i = 0; num_bytes > 0; ++i) {
    OutgoingFrame frame = waiting_.Pop();
    const size_t frame_bytes = WireBytes(frame);
    if (num_bytes < frame_bytes) begun_ = Begun{std::move(frame), headers_[i], num_bytes};
    num_bytes -= std::min(num_bytes, frame_bytes);
  }
}

void SendQueue::Clear() {
  begun_.reset();
  waiting_.Clear();
}

}  // namespace pushpull
