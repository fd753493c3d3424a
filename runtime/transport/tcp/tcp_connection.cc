// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/tcp_connection.h"

#include <sys/epoll.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// Bytes moved in one direction before the loop's other connections get their turn.
constexpr size_t kBytesPerTurn = size_t{2} << 20;

}  // namespace

TcpConnection::TcpConnection(EventLoop& loop, TcpStream stream, std::string peer, size_t frames_max)
    : loop_(loop),
      stream_(std::move(stream)),
      peer_(std::move(peer)),
      reader_(*this),
      queue_(frames_max) {}

void TcpConnection::Start(TcpConnectionOwner& owner) {
  owner_ = &owner;
  if (!stream_.is_open()) {
    loop_.Post([self = shared_from_this()] { self->Report(); });
    return;
  }
  WatchFor(is_blocked_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
  if (reader_.num_staged() > 0 || stream_.has_read_ahead()) ScheduleRead();
}

void TcpConnection::Pause() {
  owner_ = nullptr;
  Unwatch();
}

void TcpConnection::Close() {
  owner_ = nullptr;
  CloseStream();
}

absl::StatusOr<TcpStream> TcpConnection::ReleaseStream() {
  Pause();
  TcpStream stream = std::move(stream_);
  if (reader_.num_staged() > 0) {
    return absl::DataLossError("sent more before its hello was answered");
  }
  return stream;
}

void TcpConnection::UseSharedMemory(ShmSegment segment, ShmSide side) {
  rings_.emplace(std::move(segment), side);
  reader_.UseRing(rings_->incoming, rings_->regions);
  queue_.UseRing(rings_->outgoing, rings_->regions);
}

// ---- sending ----

void TcpConnection::Send(OutgoingFrame frame) {
  if (!stream_.is_open() || is_overflown_) return;
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
    if (self->stream_.is_open() && !self->is_blocked_) self->Flush();
  });
}

void TcpConnection::Flush() {
  size_t total = 0;
  while (!queue_.empty() || stream_.has_unsent()) {
    if (total >= kBytesPerTurn) return ScheduleFlush();
    const std::span<const iovec> buffers = queue_.NextBuffers(loop_.Now());
    if (buffers.empty() && !stream_.has_unsent()) break;  // until the peer gives room back
    const absl::StatusOr<Transfer> sent = stream_.Send(buffers);
    if (!sent.ok()) return Fail(sent.status());
    queue_.Consume(sent->num_bytes);
    total += sent->num_bytes;
    is_blocked_ = sent->wait == Transfer::Wait::kWritable;
    if (sent->wait != Transfer::Wait::kNothing) break;
  }
  if (watched_ != 0) WatchFor(is_blocked_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
  if (IsOpen() && stream_.has_read_ahead()) ScheduleRead();
}

absl::Status TcpConnection::TakeCredit(uint64_t num_bytes) {
  if (!rings_) return absl::DataLossError("gives back shared memory that there is not");
  PUSHPULL_RETURN_IF_ERROR(rings_->outgoing.AddCredit(num_bytes));
  if (stream_.is_open() && !is_blocked_ && !queue_.empty()) ScheduleFlush();
  return absl::OkStatus();
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
    const absl::StatusOr<Transfer> got = stream_.Receive(reader_.NextBuffers());
    if (!got.ok()) return Fail(got.status());
    total += got->num_bytes;
    const absl::Status consumed =
        got->num_bytes > 0 ? reader_.Consume(got->num_bytes, loop_.Now()) : absl::OkStatus();
    if (!consumed.ok()) return Fail(consumed);
    if (got->wait != Transfer::Wait::kNothing) break;  // the loop tells when there is more
  }
  if (stream_.is_encrypted()) FlushAfterReading();
}

// Room goes back at once, not at the end of the turn: the peer may have run out of it.
void TcpConnection::OnFrame(const ReceivedFrame& frame) {
  owner_->OnFrame(frame);
  const uint64_t credit = rings_ && stream_.is_open() ? rings_->incoming.TakeCredit() : 0;
  if (credit == 0) return;
  queue_.PushCredit(credit, loop_.Now());
  if (!is_blocked_) Flush();
}

// What came may have ended the handshake, for which frames wait, or be a question that TLS itself
// answers. And of what it has read ahead the loop tells nothing.
void TcpConnection::FlushAfterReading() {
  if (!is_blocked_ && (!queue_.empty() || stream_.has_unsent())) ScheduleFlush();
  if (IsOpen() && stream_.has_read_ahead()) ScheduleRead();
}

// Of what was read ahead, while nobody listened or until others had their turn.
void TcpConnection::ScheduleRead() {
  if (std::exchange(is_read_scheduled_, true)) return;
  loop_.Post([self = shared_from_this()] {
    self->is_read_scheduled_ = false;
    if (!self->IsOpen()) return;
    const absl::Status taken = self->reader_.Consume(0, self->loop_.Now());
    if (!taken.ok()) return self->Fail(taken);
    if (self->stream_.has_read_ahead()) self->Read();
  });
}

// ---- the loop's watch ----

void TcpConnection::WatchFor(uint32_t events) {
  if (watched_ == events) return;
  const bool is_new = watched_ == 0;
  watched_ = events;
  const absl::Status watched =
      is_new ? loop_.Watch(stream_.socket(),
                           events,
                           [self = shared_from_this()](uint32_t ready) { self->OnReady(ready); })
             : loop_.Rewatch(stream_.socket(), events);
  if (watched.ok()) return;
  if (is_new) watched_ = 0;
  FailLater(watched);
}

void TcpConnection::Unwatch() {
  if (std::exchange(watched_, 0) != 0) loop_.Unwatch(stream_.socket());
}

// ---- the end ----

void TcpConnection::Fail(const absl::Status& why) {
  if (!stream_.is_open()) return;
  const std::shared_ptr<TcpConnection> self = shared_from_this();
  failure_ = absl::Status(why.code(), absl::StrCat(peer_, ": ", why.message()));
  CloseStream();
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

void TcpConnection::CloseStream() {
  if (!stream_.is_open()) return;
  const std::shared_ptr<TcpConnection> self = shared_from_this();  // the watch may be the last
  Unwatch();
  stream_.Close();
  queue_.Clear();
}

}  // namespace pushpull
