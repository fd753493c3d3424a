// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/tcp_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

// Bytes moved in one direction before the loop's other connections get their turn.
constexpr size_t kBytesPerTurn = size_t{2} << 20;

size_t SizeOf(std::span<const iovec> buffers) {
  size_t total = 0;
  for (const iovec& buffer : buffers) total += buffer.iov_len;
  return total;
}

}  // namespace

TcpConnection::TcpConnection(EventLoop& loop,
                             FileDescriptor socket,
                             std::string peer,
                             size_t frames_max)
    : loop_(loop),
      socket_(std::move(socket)),
      peer_(std::move(peer)),
      reader_(*this),
      queue_(frames_max) {}

void TcpConnection::Start(TcpConnectionOwner& owner) {
  owner_ = &owner;
  if (!socket_.is_open()) {
    loop_.Post([self = shared_from_this()] { self->Report(); });
    return;
  }
  WatchFor(is_blocked_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
  if (reader_.num_staged() == 0) return;
  // What was read ahead while nobody listened.
  loop_.Post([self = shared_from_this()] {
    if (!self->IsOpen()) return;
    const absl::Status taken = self->reader_.Consume(0, self->loop_.Now());
    if (!taken.ok()) self->Fail(taken);
  });
}

void TcpConnection::Pause() {
  owner_ = nullptr;
  Unwatch();
}

void TcpConnection::Close() {
  owner_ = nullptr;
  CloseSocket();
}

absl::StatusOr<FileDescriptor> TcpConnection::ReleaseSocket() {
  Pause();
  FileDescriptor socket = std::move(socket_);
  if (reader_.num_staged() > 0) {
    return absl::DataLossError("sent more before its hello was answered");
  }
  return socket;
}

// ---- sending ----

void TcpConnection::Send(OutgoingFrame frame) {
  if (!socket_.is_open() || is_overflown_) return;
  const absl::Status pushed = queue_.Push(std::move(frame));
  if (!pushed.ok()) {
    is_overflown_ = true;
    return FailLater(pushed);
  }
  if (!is_blocked_) ScheduleFlush();
}

// Sent when what runs now has run, so that many small frames become one system call.
void TcpConnection::ScheduleFlush() {
  if (std::exchange(is_flush_scheduled_, true)) return;
  loop_.Post([self = shared_from_this()] {
    self->is_flush_scheduled_ = false;
    if (self->socket_.is_open() && !self->is_blocked_) self->Flush();
  });
}

void TcpConnection::Flush() {
  size_t total = 0;
  while (!queue_.empty()) {
    if (total >= kBytesPerTurn) return ScheduleFlush();
    const std::span<const iovec> buffers = queue_.NextBuffers(loop_.Now());
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(buffers.data());
    message.msg_iovlen = buffers.size();
    const size_t offered = SizeOf(buffers);
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
      return Fail(StatusFromErrno(errno, "send"));
    if (sent > 0) queue_.Consume(static_cast<size_t>(sent));
    is_blocked_ = sent < 0 || static_cast<size_t>(sent) < offered;
    if (is_blocked_) break;
    total += static_cast<size_t>(sent);
  }
  if (watched_ != 0) WatchFor(is_blocked_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

// ---- receiving ----

void TcpConnection::OnReady(uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    is_blocked_ = false;
    Flush();
  }
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) Read();
}

void TcpConnection::Read() {
  size_t total = 0;
  while (IsOpen() && total < kBytesPerTurn) {
    const std::span<const iovec> buffers = reader_.NextBuffers();
    const size_t wanted = SizeOf(buffers);
    const ssize_t got = readv(socket_.get(), buffers.data(), static_cast<int>(buffers.size()));
    if (got == 0) return Fail(absl::UnavailableError("closed the connection"));
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      return Fail(StatusFromErrno(errno, "receive"));
    }
    total += static_cast<size_t>(got);
    const absl::Status consumed = reader_.Consume(static_cast<size_t>(got), loop_.Now());
    if (!consumed.ok()) return Fail(consumed);
    if (static_cast<size_t>(got) < wanted) return;  // drained; the loop tells when there is more
  }
}

// ---- the loop's watch ----

void TcpConnection::WatchFor(uint32_t events) {
  if (watched_ == events) return;
  const bool is_new = watched_ == 0;
  watched_ = events;
  const absl::Status watched =
      is_new ? loop_.Watch(socket_.get(),
                           events,
                           [self = shared_from_this()](uint32_t ready) { self->OnReady(ready); })
             : loop_.Rewatch(socket_.get(), events);
  if (watched.ok()) return;
  if (is_new) watched_ = 0;
  FailLater(watched);
}

void TcpConnection::Unwatch() {
  if (std::exchange(watched_, 0) != 0) loop_.Unwatch(socket_.get());
}

// ---- the end ----

void TcpConnection::Fail(const absl::Status& why) {
  if (!socket_.is_open()) return;
  const std::shared_ptr<TcpConnection> self = shared_from_this();
  failure_ = absl::Status(why.code(), absl::StrCat(peer_, ": ", why.message()));
  CloseSocket();
  const FrameHeader* const lost = reader_.UnfinishedPayload();
  // The owner may end itself, which takes it from here.
  if (lost != nullptr && owner_ != nullptr) owner_->OnPayloadLost(*lost);
  Report();
}

void TcpConnection::FailLater(const absl::Status& why) {
  loop_.Post([self = shared_from_this(), why] { self->Fail(why); });
}

void TcpConnection::Report() {
  if (owner_ != nullptr) std::exchange(owner_, nullptr)->OnClosed(failure_);
}

void TcpConnection::CloseSocket() {
  if (!socket_.is_open()) return;
  const std::shared_ptr<TcpConnection> self = shared_from_this();  // the watch may be the last
  Unwatch();
  socket_.Reset();
  queue_.Clear();
}

}  // namespace pushpull
