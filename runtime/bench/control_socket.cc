// SPDX-License-Identifier: Apache-2.0
#include "runtime/bench/control_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

constexpr int kBacklog = 64;

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    constexpr absl::string_view kText =
        "socket $0: the path is longer than $1 bytes; set TMPDIR to a shorter one";
    return absl::InvalidArgumentError(absl::Substitute(kText, path, sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::Status AwaitReady(int socket, short events, Deadline deadline) {
  pollfd waiting{.fd = socket, .events = events, .revents = 0};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
    const int ready = poll(&waiting, 1, static_cast<int>(left));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return StatusFromErrno(errno, "poll of a control socket");
    if (deadline.has_passed())
      return absl::DeadlineExceededError("a process of the benchmark does not answer");
  }
}

FileDescriptor OpenSocket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

absl::StatusOr<ControlSocket> ControlSocket::Connect(const std::string& path) {
  PUSHPULL_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  FileDescriptor socket = OpenSocket();
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return StatusFromErrno(errno, absl::StrCat("connect to ", path));
  return ControlSocket(std::move(socket));
}

absl::Status ControlSocket::SendBytes(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      PUSHPULL_RETURN_IF_ERROR(AwaitReady(socket_.get(), POLLOUT, deadline));
    } else {
      return StatusFromErrno(errno, "send to a process of the benchmark");
    }
  }
  return absl::OkStatus();
}

absl::Status ControlSocket::ReceiveBytes(std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (got == 0) {
      return absl::UnavailableError("a process of the benchmark has ended");
    } else if (errno == EAGAIN || errno == EINTR) {
      PUSHPULL_RETURN_IF_ERROR(AwaitReady(socket_.get(), POLLIN, deadline));
    } else {
      return StatusFromErrno(errno, "receive from a process of the benchmark");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ControlListener> ControlListener::Listen(const std::string& path) {
  PUSHPULL_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  FileDescriptor socket = OpenSocket();
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(socket.get(), kBacklog) != 0)
    return StatusFromErrno(errno, absl::StrCat("listen on ", path));
  return ControlListener(std::move(socket));
}

absl::StatusOr<ControlSocket> ControlListener::Accept(Deadline deadline) {
  PUSHPULL_RETURN_IF_ERROR(AwaitReady(socket_.get(), POLLIN, deadline));
  FileDescriptor socket(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.is_open()) return StatusFromErrno(errno, "accept of a control socket");
  return ControlSocket(std::move(socket));
}

}  // namespace pushpull
