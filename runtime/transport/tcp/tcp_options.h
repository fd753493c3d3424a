// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/deadline.h"
#include "runtime/tls/tls_folder.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/host_identity.h"
#include "runtime/transport/shm/shm_folder.h"
#include "runtime/transport/socket_buffers.h"

namespace pushpull {

struct TcpOptions {
  // A connection that has not said a valid hello by then is closed.
  Duration handshake_timeout = std::chrono::seconds(10);
  // Sent data that nobody has acknowledged for this long ends the connection (TCP_USER_TIMEOUT),
  // and so does a peer whose host has been silent for it.
  Duration user_timeout = std::chrono::seconds(20);
  SocketBuffers buffers;
  // Frames that may wait on one channel before it closes; with whole chunks 64 GiB.
  size_t send_queue_frames_max = 65536;
  PayloadChecksums payload_checksums = PayloadChecksums::kAuto;
  // Ends with the same one read the same clock and trust the bytes between them.
  uint64_t host = HostIdentity();
  // Connections use its certificates from when they begin; outlives the loops. Null: no TLS. TLS
  // checks the bytes itself, so payload_checksums are off then.
  const TlsFolder* tls = nullptr;
  // Payloads between ends that reach the same shared memory go through it, under TLS too; outlives
  // the loops. Null: through the socket.
  const ShmFolder* shm = nullptr;
};

}  // namespace pushpull
