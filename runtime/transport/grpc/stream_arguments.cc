// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/stream_arguments.h"

#include <chrono>

#include <grpc/impl/codegen/grpc_types.h>

#include "runtime/transport/grpc/wire.h"

namespace pushpull {
namespace {

// One bit for each algorithm; the first is none.
constexpr int kNoCompression = 1;

}  // namespace

void SetStreamArguments(const TransportOptions& options,
                        const std::function<void(const char* name, int value)>& set) {
  set(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, kMessageBytesMax);
  set(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, kMessageBytesMax);
  // Neither end compresses, and compressed messages of strangers are not unpacked.
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

}  // namespace pushpull
