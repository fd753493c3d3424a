// SPDX-License-Identifier: Apache-2.0
//
// The connection between two ranks until they have recognised each other: messages of link_hello.h,
// each after its length, in plain text or over TLS. Calls block, until their deadline at most.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/base/host_port.h"
#include "runtime/collective/interrupt.h"
#include "runtime/transport/tcp/tcp_stream.h"

namespace pushpull {

// How long a call may take.
struct LinkWait {
  Deadline deadline;
  const Interrupt* interrupt = nullptr;  // may end it earlier
};

// Waits for poll's `events`. As for all calls here: kDeadlineExceeded; kCancelled: interrupted.
absl::Status AwaitSocket(int socket, short events, const LinkWait& wait);

// kUnavailable: the peer has closed the connection, or the socket has failed. kDataLoss: a length
// that no message has.
// Over TLS, also the errors of TlsStream.
absl::Status SendLinkMessage(TcpStream& stream,
                             std::span<const std::byte> body,
                             const LinkWait& wait);
absl::StatusOr<std::vector<std::byte>> ReceiveLinkMessage(TcpStream& stream, const LinkWait& wait);

// A listening socket, and connections with the options that links need; all sockets are
// non-blocking.
absl::StatusOr<FileDescriptor> ListenForRanks(const HostPort& address);
absl::StatusOr<FileDescriptor> AcceptRank(int listener, const LinkWait& wait);
absl::StatusOr<FileDescriptor> ConnectToRank(const HostPort& address, const LinkWait& wait);

}  // namespace pushpull
