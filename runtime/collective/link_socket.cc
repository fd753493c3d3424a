// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/link_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

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

// Holds several of the largest packets, so that an end that is busy reducing does not stop the
// other.
constexpr int kLinkBufferBytes = 1 << 20;

TransportOptions LinkSocketOptions() {
  TransportOptions options;
  options.buffers = {
      .bytes = kLinkBufferBytes, .bytes_on_host = kLinkBufferBytes, .unsent_bytes_max = 0};
  return options;
}

short EventsOf(Transfer::Wait wait) {
  return wait == Transfer::Wait::kReadable ? POLLIN : POLLOUT;
}

absl::Status SendWhole(TcpStream& stream, std::span<const std::byte> bytes, const LinkWait& wait) {
  while (!bytes.empty() || stream.has_unsent()) {
    const iovec buffer = {.iov_base = const_cast<std::byte*>(bytes.data()),
                          .iov_len = bytes.size()};
    const size_t num_buffers = bytes.empty() ? 0 : 1;
    PUSHPULL_ASSIGN_OR_RETURN(const Transfer sent, stream.Send(std::span(&buffer, num_buffers)));
    bytes = bytes.subspan(sent.num_bytes);
    if (sent.wait == Transfer::Wait::kNothing) continue;
    PUSHPULL_RETURN_IF_ERROR(AwaitSocket(stream.socket(), EventsOf(sent.wait), wait));
  }
  return absl::OkStatus();
}

absl::Status ReceiveWhole(TcpStream& stream, std::span<std::byte> bytes, const LinkWait& wait) {
  while (!bytes.empty()) {
    const iovec buffer = {.iov_base = bytes.data(), .iov_len = bytes.size()};
    PUSHPULL_ASSIGN_OR_RETURN(const Transfer got, stream.Receive(std::span(&buffer, 1)));
    bytes = bytes.subspan(got.num_bytes);
    if (got.wait == Transfer::Wait::kNothing) continue;
    // The TLS handshake also sends.
    const int events = POLLIN | (stream.has_unsent() ? POLLOUT : 0);
    PUSHPULL_RETURN_IF_ERROR(AwaitSocket(stream.socket(), static_cast<short>(events), wait));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AwaitSocket(int socket, short events, const LinkWait& wait) {
  // poll ignores a negative descriptor.
  std::array<pollfd, 2> waiting{
      pollfd{.fd = socket, .events = events, .revents = 0},
      pollfd{.fd = wait.interrupt == nullptr ? -1 : wait.interrupt->descriptor(),
             .events = POLLIN,
             .revents = 0}};
  while (true) {
    const int64_t left =
        std::chrono::ceil<std::chrono::milliseconds>(wait.deadline.remaining()).count();
    const int ready =
        poll(waiting.data(),
             waiting.size(),
             static_cast<int>(std::min<int64_t>(left, std::numeric_limits<int>::max())));
    if (ready > 0 && waiting[1].revents != 0) return absl::CancelledError("interrupted");
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return StatusFromErrno(errno, "poll");
    if (wait.deadline.has_passed()) return absl::DeadlineExceededError("does not answer");
  }
}

absl::Status SendLinkMessage(TcpStream& stream,
                             std::span<const std::byte> body,
                             const LinkWait& wait) {
  std::vector<std::byte> message = BytesOf(static_cast<uint32_t>(body.size()));
  message.insert(message.end(), body.begin(), body.end());
  return SendWhole(stream, message, wait);
}

absl::StatusOr<std::vector<std::byte>> ReceiveLinkMessage(TcpStream& stream, const LinkWait& wait) {
  std::array<std::byte, sizeof(uint32_t)> length{};
  PUSHPULL_RETURN_IF_ERROR(ReceiveWhole(stream, length, wait));
  const auto num_bytes = LoadNumber<uint32_t>(length);
  if (num_bytes > kLinkMessageBytesMax) {
    return absl::DataLossError(absl::StrCat(
        "announces a message of ", num_bytes, " bytes: it is no rank of a communicator"));
  }
  std::vector<std::byte> body(num_bytes);
  PUSHPULL_RETURN_IF_ERROR(ReceiveWhole(stream, body, wait));
  return body;
}

absl::StatusOr<FileDescriptor> ListenForRanks(const HostPort& address) {
  return ListenOn(address, LinkSocketOptions());
}

absl::StatusOr<FileDescriptor> AcceptRank(int listener, const LinkWait& wait) {
  while (true) {
    absl::StatusOr<FileDescriptor> accepted = AcceptFrom(listener, LinkSocketOptions());
    if (!absl::IsUnavailable(accepted.status())) return accepted;
    PUSHPULL_RETURN_IF_ERROR(AwaitSocket(listener, POLLIN, wait));
  }
}

absl::StatusOr<FileDescriptor> ConnectToRank(const HostPort& address, const LinkWait& wait) {
  const TransportOptions options = LinkSocketOptions();
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<SocketAddress> found,
                            LookUp(address, LookUpFor::kConnecting));
  PUSHPULL_ASSIGN_OR_RETURN(FileDescriptor socket, BeginConnect(found.front(), options));
  PUSHPULL_RETURN_IF_ERROR(AwaitSocket(socket.get(), POLLOUT, wait));
  PUSHPULL_RETURN_IF_ERROR(ConnectResult(socket.get()));
  TuneToPeer(socket.get(), options.buffers);
  return socket;
}

}  // namespace pushpull
