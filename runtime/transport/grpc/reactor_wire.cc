// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/reactor_wire.h"

#include <chrono>
#include <vector>

#include <grpc/impl/codegen/grpc_types.h>
#include <grpcpp/support/slice.h>

namespace pushpull {
namespace {

// One bit per algorithm; the first is no compression.
constexpr int kNoCompression = 1;

// gRPC destroys `owner` when it has read the bytes for the last time.
template <typename Owner>
grpc::Slice Refer(std::span<const std::byte> bytes, std::unique_ptr<Owner> owner) {
  // Slices are not const because some are written to; a message's are not.
  return {const_cast<std::byte*>(bytes.data()),
          bytes.size(),
          [](void* held) { delete static_cast<Owner*>(held); },
          owner.release()};
}

}  // namespace

void SetStreamArguments(const TransportOptions& options,
                        const std::function<void(const char* name, int value)>& set) {
  set(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, kMessageBytesMax);
  set(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, kMessageBytesMax);
  // Neither end compresses, and compressed messages from strangers are not unpacked.
  set(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, kNoCompression);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, static_cast<int>(options.window_bytes));
  // The default cuts each chunk into HTTP/2 frames of 16 KiB.
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMessageBytesMax);
  // A peer behind a cut link, or on a crashed machine, does not close its connection.
  const auto half =
      std::chrono::duration_cast<std::chrono::milliseconds>(options.silence_timeout).count() / 2;
  set(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(half));
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(half));
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

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
