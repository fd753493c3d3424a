// SPDX-License-Identifier: Apache-2.0
//
// The transport of a member's process.
#pragma once

#include <memory>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/tls/tls_folder.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/shm/shm_folder.h"
#include "runtime/transport/socket_buffers.h"

namespace pushpull {

struct MemberTransportOptions {
  bool has_grpc = false;           // else tcp
  const TlsFolder* tls = nullptr;  // null: no TLS
  const ShmFolder* shm = nullptr;  // of tcp only; null: through the socket
  PayloadChecksums payload_checksums = PayloadChecksums::kAuto;
  SocketBuffers buffers;  // of tcp
};

// The loops and what the options name outlive it.
std::unique_ptr<Transport> MakeMemberTransport(std::vector<EventLoop*> loops,
                                               const MemberTransportOptions& options);

}  // namespace pushpull
