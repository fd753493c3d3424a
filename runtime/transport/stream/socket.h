// SPDX-License-Identifier: Apache-2.0
//
// System calls for connecting and listening, and the options of every socket of the data path.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/base/host_port.h"
#include "runtime/transport/stream/socket_address.h"
#include "runtime/transport/stream/transport_options.h"

namespace pushpull {

// A non-blocking listening socket on the first address of the host that can be bound. Blocks while
// looking up a name. kAlreadyExists: the port is in use.
absl::StatusOr<FileDescriptor> ListenOn(const HostPort& address, const TransportOptions& options);

// A non-blocking socket whose connect is in progress; it becomes writable when the result is known.
absl::StatusOr<FileDescriptor> BeginConnect(const SocketAddress& address,
                                            const TransportOptions& options);

// The result of such a connect.
absl::Status ConnectResult(int socket);

// Sizes the buffers for a peer on this or another host. Called before anything is sent.
void TuneToPeer(int socket, const SocketBuffers& buffers);

// An accepted connection with its options set. kUnavailable: none is waiting (any more);
// kResourceExhausted: no descriptor or memory is left for it.
absl::StatusOr<FileDescriptor> AcceptFrom(int listener, const TransportOptions& options);

}  // namespace pushpull
