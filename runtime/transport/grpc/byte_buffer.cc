// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/byte_buffer.h"

#include <chrono>
#include <utility>

#include <grpcpp/support/slice.h>

namespace pushpull {
namespace {

// gRPC destroys `owner` when it has read the bytes for the last time.
template <typename Owner>
grpc::Slice Refer(std::span<const std::byte> bytes, std::unique_ptr<Owner> owner) {
  // A slice is not const because some are written to; a message's are not.
  return {const_cast<std::byte*>(bytes.data()),
          bytes.size(),
          [](void* held) { delete static_cast<Owner*>(held); },
          owner.release()};
}

}  // namespace

grpc::ByteBuffer ToByteBuffer(OutgoingMessage message) {
  std::vector<grpc::Slice> slices;
  slices.reserve(2 * message.size());
  for (MessagePart& part : message) {
    auto own = std::make_unique<std::vector<std::byte>>(std::move(part.own));
    const std::span<const std::byte> bytes = *own;
    slices.push_back(Refer(bytes, std::move(own)));
    if (part.payload == nullptr) continue;
    const std::span<const std::byte> lent = part.payload->bytes();
    slices.push_back(Refer(lent, std::move(part.payload)));
  }
  return {slices.data(), slices.size()};
}

IncomingMessage FromByteBuffer(const grpc::ByteBuffer& buffer) {
  const auto slices = std::make_shared<std::vector<grpc::Slice>>();
  IncomingMessage message{
      .slices = {}, .owner = slices, .received_at = std::chrono::steady_clock::now()};
  // Only fails for compressed messages, which are disabled.
  if (!buffer.Dump(slices.get()).ok()) return message;
  message.slices.reserve(slices->size());
  for (const grpc::Slice& slice : *slices)
    message.slices.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
  return message;
}

}  // namespace pushpull
