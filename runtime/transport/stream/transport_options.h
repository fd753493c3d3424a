// SPDX-License-Identifier: Apache-2.0
//
// How a process connects and listens for tensors, over tcp and over gRPC.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pushpull/deadline.h"

#include "runtime/tls/tls_folder.h"
#include "runtime/transport/channel_choice.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/shm/shm_segment.h"

namespace pushpull {

struct TransportOptions {
  // Which transport MakeMemberTransport makes: grpc, else tcp.
  bool has_grpc = false;
  // A connection without a valid hello after this time is closed.
  Duration handshake_timeout = std::chrono::seconds(10);
  // A connection whose peer acknowledges nothing for this long fails: no sent data, no keepalive
  // probe (TCP_USER_TIMEOUT), no HTTP/2 ping.
  Duration silence_timeout = std::chrono::seconds(20);
  // tcp only; HTTP/2 has its own window.
  SocketBuffers buffers;
  // grpc only: bytes in flight to a stream that nobody reads. HTTP/2's default is 64 KiB.
  size_t window_bytes = size_t{4} << 20;
  // Frames queued on one channel before it closes; with full chunks 16 GiB.
  size_t send_queue_frames_max = 65536;
  PayloadChecksums payload_checksums = PayloadChecksums::kAuto;
  // Ends with the same identity read the same clock and trust the bytes between them.
  uint64_t host = HostIdentity();
  // A connection uses the certificates that are current when it begins. Null: no TLS. TLS verifies
  // the bytes itself, so payload_checksums are off then. Outlives the loops and the transport.
  const TlsFolder* tls = nullptr;
  // tcp only: ends that reach the same shared memory send payloads through it, under TLS too. Null:
  // through the socket. Outlives the loops.
  const ShmFolder* shm = nullptr;
};

}  // namespace pushpull
