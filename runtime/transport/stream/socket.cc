// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/stream/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// Connections that the kernel queues until they are accepted: a job's workers connect all at once.
constexpr int kBacklog = 1024;

void SetOption(int socket, int level, int name, int value) {
  // Options only tune: without one the socket still works, but slower.
  setsockopt(socket, level, name, &value, sizeof value);
}

void SetTimeouts(int socket, Duration silence_timeout) {
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(silence_timeout).count();
  const int seconds = std::max(1, static_cast<int>(milliseconds / 1000));
  SetOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(milliseconds));
  // Probes make an idle connection notice a dead host. TCP_USER_TIMEOUT limits how long they may go
  // unanswered.
  SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
  SetOption(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 4));
}

void SetBuffers(int socket, int bytes) {
  SetOption(socket, SOL_SOCKET, SO_SNDBUF, bytes);
  SetOption(socket, SOL_SOCKET, SO_RCVBUF, bytes);
}

// Before connect, which fixes the window scale; hence the larger buffers, those for a peer on this
// host.
void Tune(int socket, const TransportOptions& options) {
  SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetBuffers(socket, options.buffers.bytes_on_host);
  if (options.buffers.unsent_bytes_max > 0)
    SetOption(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, options.buffers.unsent_bytes_max);
  SetTimeouts(socket, options.silence_timeout);
}

FileDescriptor OpenSocket(int family) {
  return FileDescriptor(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

absl::StatusOr<FileDescriptor> BindTo(const SocketAddress& address,
                                      const TransportOptions& options) {
  FileDescriptor socket = OpenSocket(address.family());
  if (!socket.is_open()) return StatusFromErrno(errno, "socket");
  SetOption(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  Tune(socket.get(), options);
  if (bind(socket.get(), address.get(), address.length) != 0 || listen(socket.get(), kBacklog) != 0)
    return StatusFromErrno(errno, "bind");
  return socket;
}

}  // namespace

absl::StatusOr<FileDescriptor> ListenOn(const HostPort& address, const TransportOptions& options) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<SocketAddress> candidates,
                            LookUp(address, LookUpFor::kListening));
  absl::Status first_failure;
  for (const SocketAddress& candidate : candidates) {
    absl::StatusOr<FileDescriptor> socket = BindTo(candidate, options);
    if (socket.ok()) return socket;
    first_failure.Update(socket.status());
  }
  return absl::Status(first_failure.code(),
                      absl::StrCat("listen on ", ToString(address), ": ", first_failure.message()));
}

absl::StatusOr<FileDescriptor> BeginConnect(const SocketAddress& address,
                                            const TransportOptions& options) {
  FileDescriptor socket = OpenSocket(address.family());
  if (!socket.is_open()) return StatusFromErrno(errno, "socket");
  Tune(socket.get(), options);
  if (connect(socket.get(), address.get(), address.length) != 0 && errno != EINPROGRESS)
    return StatusFromErrno(errno, "connect");
  return socket;
}

absl::Status ConnectResult(int socket) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  return error == 0 ? absl::OkStatus() : StatusFromErrno(error, "connect");
}

void TuneToPeer(int socket, const SocketBuffers& buffers) {
  if (!IsToOwnAddress(socket)) SetBuffers(socket, buffers.bytes);
}

absl::StatusOr<FileDescriptor> AcceptFrom(int listener, const TransportOptions& options) {
  FileDescriptor socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.is_open()) return StatusFromErrno(errno, "accept");
  Tune(socket.get(), options);
  TuneToPeer(socket.get(), options.buffers);
  return socket;
}

}  // namespace pushpull
