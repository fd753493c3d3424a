// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/send_batch.h"

#include <array>
#include <utility>

namespace pushpull {
namespace {

// Like the tcp channel's batches (tcp/send_queue.h).
constexpr size_t kBatchBytes = 256 * 1024;
constexpr size_t kBatchFrames = 32;

// Copying so few bytes is cheaper than lending them.
constexpr size_t kCopiedBytesMax = 4096;

void EncodeHead(OutgoingFrame& frame,
                SteadyTime now,
                bool has_checksums,
                std::vector<std::byte>& out) {
  frame.header.sent_at =
      std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
  if (has_checksums && !frame.payload.bytes.empty()) {
    frame.header.flags |= kFlagPayloadChecksum;
    frame.header.payload_checksum = ChecksumPayload(frame.payload.bytes);
  }
  std::array<std::byte, kFrameHeaderBytes> header;
  EncodeFrameHeader(frame.header, header);
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), frame.meta.begin(), frame.meta.end());
}

}  // namespace

OutgoingMessage NextMessage(FrameQueue& waiting,
                            SteadyTime now,
                            bool has_checksums,
                            OwnerlessPayloads ownerless,
                            PayloadLoans& loans) {
  OutgoingMessage message;
  std::vector<std::byte> own;
  size_t num_bytes = 0;
  for (size_t i = 0; i < kBatchFrames && num_bytes < kBatchBytes && !waiting.empty(); ++i) {
    OutgoingFrame frame = waiting.Pop();
    num_bytes += WireBytes(frame);
    EncodeHead(frame, now, has_checksums, own);
    const std::span<const std::byte> payload = frame.payload.bytes;
    const bool must_copy = frame.payload.owner == nullptr && ownerless == OwnerlessPayloads::kCopy;
    if (must_copy || payload.size() <= kCopiedBytesMax) {
      own.insert(own.end(), payload.begin(), payload.end());
    } else {
      message.push_back(
          {.own = std::exchange(own, {}), .payload = loans.Lend(std::move(frame.payload))});
    }
  }
  if (!own.empty()) message.push_back({.own = std::move(own), .payload = nullptr});
  return message;
}

}  // namespace pushpull
