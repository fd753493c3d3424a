// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/tcp_stream.h"

#include <sys/socket.h>

#include <cerrno>

namespace pushpull {
namespace {

size_t SizeOf(std::span<const iovec> buffers) {
  size_t total = 0;
  for (const iovec& buffer : buffers) total += buffer.iov_len;
  return total;
}

// The outcome of a call that returned `result`, for `wanted` bytes.
absl::StatusOr<Transfer> Moved(ssize_t result,
                               size_t wanted,
                               Transfer::Wait wait,
                               const char* what) {
  if (result < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return StatusFromErrno(errno, what);
  const size_t num_bytes = result < 0 ? 0 : static_cast<size_t>(result);
  return Transfer{.num_bytes = num_bytes,
                  .wait = num_bytes < wanted ? wait : Transfer::Wait::kNothing};
}

}  // namespace

TcpStream::TcpStream(FileDescriptor socket,
                     std::shared_ptr<const TlsIdentity> identity,
                     TlsSide side)
    : socket_(std::move(socket)) {
  if (identity != nullptr)
    tls_ = std::make_unique<TlsStream>(std::move(identity), side, socket_.get());
}

void TcpStream::Close() {
  tls_.reset();
  socket_.Reset();
}

absl::StatusOr<Transfer> TcpStream::ReceivePlain(std::span<const iovec> buffers) {
  ssize_t got = 0;
  do {
    got = readv(socket_.get(), buffers.data(), static_cast<int>(buffers.size()));
  } while (got < 0 && errno == EINTR);
  if (got == 0) return absl::UnavailableError("closed the connection");
  return Moved(got, SizeOf(buffers), Transfer::Wait::kReadable, "receive");
}

absl::StatusOr<Transfer> TcpStream::SendPlain(std::span<const iovec> buffers) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(buffers.data());
  message.msg_iovlen = buffers.size();
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return Moved(sent, SizeOf(buffers), Transfer::Wait::kWritable, "send");
}

}  // namespace pushpull
