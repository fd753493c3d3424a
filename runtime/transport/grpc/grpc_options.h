// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/deadline.h"
#include "runtime/tls/tls_folder.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/host_identity.h"

namespace pushpull {

struct GrpcOptions {
  // A connection that has not begun a stream by then is closed, and a stream without a valid hello.
  Duration handshake_timeout = std::chrono::seconds(10);
  // A peer that answers no ping of HTTP/2 for this long is gone.
  Duration silence_timeout = std::chrono::seconds(20);
  // What may be on its way to a stream that nobody reads. HTTP/2 allows 64 KiB unless told more.
  size_t window_bytes = size_t{4} << 20;
  // Frames that may wait on one channel before it closes; with whole chunks 64 GiB.
  size_t send_queue_frames_max = 65536;
  PayloadChecksums payload_checksums = PayloadChecksums::kAuto;
  // Ends with the same one read the same clock and trust the bytes between them.
  uint64_t host = HostIdentity();
  // Connections use its certificates from when they begin; outlives the transport. Null: no TLS.
  // TLS checks the bytes itself, so payload_checksums are off then.
  const TlsFolder* tls = nullptr;
};

}  // namespace pushpull
