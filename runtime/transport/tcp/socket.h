// SPDX-License-Identifier: Apache-2.0
//
// The system calls of connecting and listening, and the options every socket of the data path gets.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/base/host_port.h"
#include "runtime/transport/tcp/socket_address.h"
#include "runtime/transport/tcp/tcp_options.h"

namespace pushpull {

// A non-blocking listening socket on the first address of the host that can be bound. Blocks for
// the look-up of a name. kAlreadyExists: the port is in use.
absl::StatusOr<FileDescriptor> ListenOn(const HostPort& address, const TcpOptions& options);

// A non-blocking socket whose connection has begun; it is writable when that is decided.
absl::StatusOr<FileDescriptor> BeginConnect(const SocketAddress& address,
                                            const TcpOptions& options);

// What a decided connect came to.
absl::Status ConnectResult(int socket);

// A connected socket's buffers become those for where its peer is; nothing has been sent yet.
void TuneToPeer(int socket, const SocketBuffers& buffers);

// An accepted connection with its options set. kUnavailable: there is none (any more);
// kResourceExhausted: no descriptor or memory is left for it.
absl::StatusOr<FileDescriptor> AcceptFrom(int listener, const TcpOptions& options);

}  // namespace pushpull
