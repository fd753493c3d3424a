// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/link_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/collective/link_hello.h"
#include "runtime/transport/stream/socket.h"

namespace pushpull {
namespace {

// Several of the largest packets, so that an end that reduces does not stop the other one.
constexpr int kLinkBufferBytes = 1 << 20;

TransportOptions LinkSocketOptions() {
  TransportOptions options;
  options.buffers = {
      .bytes = kLinkBufferBytes, .bytes_on_host = kLinkBufferBytes, .unsent_bytes_max = 0};
  return options;
}

// Moves all of `bytes` by `call`, which is send or recv.
template <typename Bytes, typename Call>
absl::Status MoveWhole(
    int socket, short events, Bytes bytes, Deadline deadline, const char* what, Call call) {
  while (!bytes.empty()) {
    const ssize_t moved = call(bytes);
    if (moved > 0) {
      bytes = bytes.subspan(static_cast<size_t>(moved));
    } else if (moved == 0) {
      return absl::UnavailableError("has closed the connection");
    } else if (errno == EAGAIN || errno == EINTR) {
      PUSHPULL_RETURN_IF_ERROR(AwaitSocket(socket, events, deadline));
    } else {
      return StatusFromErrno(errno, what);
    }
  }
  return absl::OkStatus();
}

absl::Status SendWhole(int socket, std::span<const std::byte> bytes, Deadline deadline) {
  return MoveWhole(socket, POLLOUT, bytes, deadline, "send", [&](std::span<const std::byte> rest) {
    return send(socket, rest.data(), rest.size(), MSG_NOSIGNAL);
  });
}

absl::Status ReceiveWhole(int socket, std::span<std::byte> bytes, Deadline deadline) {
  return MoveWhole(socket, POLLIN, bytes, deadline, "receive", [&](std::span<std::byte> rest) {
    return recv(socket, rest.data(), rest.size(), 0);
  });
}

}  // namespace

absl::Status AwaitSocket(int socket, short events, Deadline deadline) {
  pollfd waiting{.fd = socket, .events = events, .revents = 0};
  while (true) {
    const int64_t left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
    const int ready = poll(
        &waiting, 1, static_cast<int>(std::min<int64_t>(left, std::numeric_limits<int>::max())));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return StatusFromErrno(errno, "poll");
    if (deadline.has_passed()) return absl::DeadlineExceededError("does not answer");
  }
}

absl::Status SendLinkMessage(int socket, std::span<const std::byte> body, Deadline deadline) {
  std::vector<std::byte> message = BytesOf(static_cast<uint32_t>(body.size()));
  message.insert(message.end(), body.begin(), body.end());
  return SendWhole(socket, message, deadline);
}

absl::StatusOr<std::vector<std::byte>> ReceiveLinkMessage(int socket, Deadline deadline) {
  std::array<std::byte, sizeof(uint32_t)> length{};
  PUSHPULL_RETURN_IF_ERROR(ReceiveWhole(socket, length, deadline));
  const auto num_bytes = LoadNumber<uint32_t>(length);
  if (num_bytes > kLinkMessageBytesMax) {
    return absl::DataLossError(absl::StrCat(
        "announces a message of ", num_bytes, " bytes: it is no rank of a communicator"));
  }
  std::vector<std::byte> body(num_bytes);
  PUSHPULL_RETURN_IF_ERROR(ReceiveWhole(socket, body, deadline));
  return body;
}

absl::StatusOr<FileDescriptor> ListenForRanks(const HostPort& address) {
  return ListenOn(address, LinkSocketOptions());
}

absl::StatusOr<FileDescriptor> AcceptRank(int listener, Deadline deadline) {
  while (true) {
    absl::StatusOr<FileDescriptor> accepted = AcceptFrom(listener, LinkSocketOptions());
    if (!absl::IsUnavailable(accepted.status())) return accepted;
    PUSHPULL_RETURN_IF_ERROR(AwaitSocket(listener, POLLIN, deadline));
  }
}

absl::StatusOr<FileDescriptor> ConnectToRank(const HostPort& address, Deadline deadline) {
  const TransportOptions options = LinkSocketOptions();
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<SocketAddress> found,
                            LookUp(address, LookUpFor::kConnecting));
  PUSHPULL_ASSIGN_OR_RETURN(FileDescriptor socket, BeginConnect(found.front(), options));
  PUSHPULL_RETURN_IF_ERROR(AwaitSocket(socket.get(), POLLOUT, deadline));
  PUSHPULL_RETURN_IF_ERROR(ConnectResult(socket.get()));
  TuneToPeer(socket.get(), options.buffers);
  return socket;
}

}  // namespace pushpull
