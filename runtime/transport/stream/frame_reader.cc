// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/stream/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// After a payload this large the next one is probably large too. Then only the next header and a
// typical meta are read ahead, because payload bytes in the staging buffer must be copied once
// more.
constexpr size_t kLargePayloadBytes = 32 * 1024;
constexpr size_t kReadAheadOfLarge = 256;

}  // namespace

FrameReader::FrameReader(FrameSink& sink)
    : sink_(sink), staging_(std::make_unique_for_overwrite<std::byte[]>(kStagingBytes)) {}

std::span<const iovec> FrameReader::NextBuffers() {
  const bool is_direct = receives_directly();
  if (is_direct) {
    const std::span<std::byte> rest = payload_.last(payload_left_);
    buffers_[0] = {rest.data(), rest.size()};
  }
  buffers_[is_direct ? 1 : 0] = StagingSpace();
  return std::span(buffers_).first(is_direct ? 2 : 1);
}

iovec FrameReader::StagingSpace() {
  std::memmove(staging_.get(), staging_.get() + staged_begin_, num_staged());
  staged_end_ -= staged_begin_;
  staged_begin_ = 0;
  size_t free = kStagingBytes - staged_end_;
  const bool is_discarding = in_payload_ && payload_.empty();
  // A longer meta gets more room once its header is staged, so a frame never gets stuck here.
  if (header_.payload_bytes >= kLargePayloadBytes && !is_discarding && ring_ == nullptr &&
      num_staged() < kFrameHeaderBytes)
    free = std::min(free, kReadAheadOfLarge);
  return {staging_.get() + staged_end_, free};
}

absl::Status FrameReader::Consume(size_t num_bytes, SteadyTime now) {
  if (receives_directly()) {
    const size_t direct = std::min(num_bytes, payload_left_);
    payload_left_ -= direct;
    num_bytes -= direct;
  }
  staged_end_ += num_bytes;
  return TakeStaged(now);
}

// Each sink call may close or pause the stream, so IsOpen is checked before every step.
absl::Status FrameReader::TakeStaged(SteadyTime now) {
  while (sink_.IsOpen()) {
    if (in_payload_) {
      TakePayload();
      if (payload_left_ > 0) return absl::OkStatus();
      PUSHPULL_RETURN_IF_ERROR(EndPayload(now));
    } else {
      PUSHPULL_ASSIGN_OR_RETURN(const bool has_begun, BeginFrame(now));
      if (!has_begun) return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> FrameReader::BeginFrame(SteadyTime now) {
  const std::span<const std::byte> staged(staging_.get() + staged_begin_, num_staged());
  if (staged.size() < kFrameHeaderBytes) return false;
  PUSHPULL_ASSIGN_OR_RETURN(const FrameHeader header,
                            DecodeFrameHeader(staged.first<kFrameHeaderBytes>()));
  if (staged.size() < kFrameHeaderBytes + header.meta_bytes) return false;

  header_ = header;
  const std::span<const std::byte> meta = staged.subspan(kFrameHeaderBytes, header.meta_bytes);
  meta_.assign(meta.begin(), meta.end());
  staged_begin_ += kFrameHeaderBytes + header.meta_bytes;
  if (header.payload_bytes == 0) {
    sink_.OnFrame({.header = header_, .meta = meta_, .payload = {}, .received_at = now});
    return true;
  }
  payload_left_ = header.payload_bytes;
  // in_payload_ is set before the sink is called: from then on it may hold a buffer for the
  // payload, and UnfinishedPayload must report the frame if the stream fails.
  PUSHPULL_RETURN_IF_ERROR(FindInRegion());
  in_payload_ = true;
  stays_in_place_ = !in_region_.bytes.empty() && sink_.TakesInPlace(header_);
  payload_ = stays_in_place_ ? std::span<std::byte>() : sink_.PayloadBuffer(header_);
  if (!payload_.empty() && payload_.size() != header.payload_bytes) {
    return absl::InternalError(absl::StrCat(
        "a buffer of ", payload_.size(), " bytes for a payload of ", header.payload_bytes));
  }
  return true;
}

absl::Status FrameReader::FindInRegion() {
  in_region_ = {};
  if ((header_.flags & kFlagInRegion) == 0) return absl::OkStatus();
  if (regions_ == nullptr)
    return absl::DataLossError("a frame refers to shared memory, which this channel does not have");
  PUSHPULL_ASSIGN_OR_RETURN(const RegionPlace place, TakePlace(meta_));
  PUSHPULL_ASSIGN_OR_RETURN(in_region_, regions_->Resolve(place, header_.payload_bytes));
  header_.flags = static_cast<uint8_t>(header_.flags & ~kFlagInRegion);
  header_.meta_bytes = static_cast<uint16_t>(meta_.size());
  return absl::OkStatus();
}

void FrameReader::TakePayload() {
  if (ring_ != nullptr) {
    if (in_region_.bytes.empty()) {
      ring_->Read(payload_left_, payload_);
    } else {
      if (!payload_.empty()) std::memcpy(payload_.data(), in_region_.bytes.data(), payload_.size());
      ring_->Skip(payload_left_);
    }
    payload_left_ = 0;
    return;
  }
  const size_t part = std::min(num_staged(), payload_left_);
  if (part == 0) return;
  if (!payload_.empty()) {
    const std::span<std::byte> rest = payload_.last(payload_left_);
    std::memcpy(rest.data(), staging_.get() + staged_begin_, part);
  }
  staged_begin_ += part;
  payload_left_ -= part;
}

absl::Status FrameReader::EndPayload(SteadyTime now) {
  const Payload in_place = stays_in_place_ ? std::exchange(in_region_, {}) : Payload{};
  const std::span<const std::byte> read = stays_in_place_ ? in_place.bytes : payload_;
  const bool is_checked = (header_.flags & kFlagPayloadChecksum) != 0 && !read.empty();
  if (is_checked && ChecksumPayload(read) != header_.payload_checksum) {
    return absl::DataLossError(
        absl::StrCat("the payload of chunk ", header_.chunk.value(), " has a wrong checksum"));
  }
  in_payload_ = false;
  sink_.OnFrame({.header = header_,
                 .meta = meta_,
                 .payload = payload_,
                 .received_at = now,
                 .in_place = in_place});
  return absl::OkStatus();
}

}  // namespace pushpull
