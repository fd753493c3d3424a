// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/send_queue.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/wire_bytes.h"

namespace pushpull {

size_t SendQueue::num_bytes() const {
  return waiting_.num_bytes() + num_staged() +
         (begun_ ? WireBytes(begun_->frame) - begun_->bytes_written : 0);
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

void SendQueue::UseRing(PayloadRingWriter& ring, const SharedRegions& regions) {
  PUSHPULL_CHECK(!begun_);
  ring_ = &ring;
  regions_ = &regions;
}

void SendQueue::PushCredit(uint64_t num_bytes, SteadyTime now) {
  OutgoingFrame credit{
      .header = {.type = FrameType::kCredit}, .meta = BytesOf(num_bytes), .payload = {}};
  credit.header.meta_bytes = static_cast<uint16_t>(credit.meta.size());
  Stage(credit, now);
}

bool SendQueue::RefersToRegion(OutgoingFrame& frame) const {
  if (!frame.payload.is_settled || frame.meta.size() + kRegionPlaceBytes > kFrameMetaBytesMax)
    return false;
  const std::optional<RegionPlace> place = regions_->Find(frame.payload.bytes);
  if (!place) return false;
  AppendPlace(*place, frame.meta);
  frame.header.meta_bytes = static_cast<uint16_t>(frame.meta.size());
  frame.header.flags |= kFlagInRegion;
  return true;
}

void SendQueue::Stage(OutgoingFrame& frame, SteadyTime now) {
  const bool refers = RefersToRegion(frame);
  HeaderBytes header;
  EncodeHead(frame, now, has_checksums_, header);
  if (refers) {
    ring_->Skip(frame.payload.bytes.size());
  } else {
    ring_->Write(frame.payload.bytes);
  }
  staged_.insert(staged_.end(), header.begin(), header.end());
  staged_.insert(staged_.end(), frame.meta.begin(), frame.meta.end());
}

// Frames are staged late, a few at a time: once its payload is in the ring, a frame can no longer
// be overtaken. The first frame that does not fit ends the batch, so order is kept.
std::span<const iovec> SendQueue::NextOverRing(SteadyTime now) {
  size_t num_bytes = 0;
  while (!waiting_.empty() && num_bytes < kBatchBytes && num_staged() < kStagedBytesMax &&
         ring_->Fits(waiting_.front().payload.bytes.size())) {
    OutgoingFrame frame = waiting_.Pop();
    num_bytes += WireBytes(frame);
    Stage(frame, now);
  }
  if (num_staged() > 0) buffers_.push_back({staged_.data() + staged_written_, num_staged()});
  return buffers_;
}

std::span<const iovec> SendQueue::NextBuffers(SteadyTime now) {
  buffers_.clear();
  if (ring_ != nullptr) return NextOverRing(now);
  size_t num_bytes = 0;
  if (begun_) {
    num_bytes = WireBytes(begun_->frame) - begun_->bytes_written;
    Append(begun_->frame, begun_->header, begun_->bytes_written);
  }
  size_t num_frames = 0;
  waiting_.ForEach([&](OutgoingFrame& frame) {
    if (num_bytes >= kBatchBytes || num_frames == kBatchFrames) return false;
    HeaderBytes& header = headers_[num_frames++];
    EncodeHead(frame, now, has_checksums_, header);
    Append(frame, header, 0);
    num_bytes += WireBytes(frame);
    return true;
  });
  return buffers_;
}

void SendQueue::Consume(size_t num_bytes) {
  if (ring_ != nullptr) {
    staged_written_ += num_bytes;
    if (num_staged() > 0) return;
    staged_.clear();
    staged_written_ = 0;
    return;
  }
  if (begun_) {
    const size_t part = std::min(num_bytes, WireBytes(begun_->frame) - begun_->bytes_written);
    begun_->bytes_written += part;
    num_bytes -= part;
    if (begun_->bytes_written == WireBytes(begun_->frame)) begun_.reset();
  }
  // The same order as in NextBuffers, so headers_[i] belongs to the i-th frame popped here.
  for (size_t i = 0; num_bytes > 0; ++i) {
    OutgoingFrame frame = waiting_.Pop();
    const size_t frame_bytes = WireBytes(frame);
    if (num_bytes < frame_bytes) begun_ = Begun{std::move(frame), headers_[i], num_bytes};
    num_bytes -= std::min(num_bytes, frame_bytes);
  }
}

void SendQueue::Clear() {
  begun_.reset();
  staged_.clear();
  staged_written_ = 0;
  waiting_.Clear();
}

}  // namespace pushpull
