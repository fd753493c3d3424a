// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/tcp_connection.h"

#include <sys/epoll.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/wire_bytes.h"
#include "runtime/transport/stream/socket_address.h"

namespace pushpull {
namespace {

// Bytes moved in one direction before the loop's other connections get their turn.
constexpr size_t kBytesPerTurn = size_t{2} << 20;

}  // namespace

TcpConnection::TcpConnection(EventLoop& loop,
                             TcpStream stream,
                             std::string peer,
                             const TransportOptions& options)
    : FrameStream(loop, std::move(peer)),
      options_(options),
      stream_(std::move(stream)),
      queue_(options.send_queue_frames_max) {}

std::shared_ptr<TcpConnection> TcpConnection::Self() {
  return std::static_pointer_cast<TcpConnection>(shared_from_this());
}

void TcpConnection::Resume() {
  WatchForPeer();
  if (has_unread() || stream_.has_read_ahead()) ScheduleRead();
}

// The posted Flush holds the last reference: the socket closes once it has written the frame.
void TcpConnection::CloseAfter(OutgoingFrame frame) {
  Send(std::move(frame));
  Pause();
}

std::shared_ptr<FrameStream> TcpConnection::Rehome(EventLoop& loop, std::string peer) {
  auto moved = std::make_shared<TcpConnection>(loop, std::move(stream_), std::move(peer), options_);
  if (segment_) moved->UseRings(*std::exchange(segment_, std::nullopt), ShmSide::kAccepting);
  return moved;
}

void TcpConnection::Disconnect() {
  Unwatch();
  stream_.Close();
  queue_.Clear();
}

// ---- sending ----

absl::Status TcpConnection::Enqueue(OutgoingFrame frame) {
  PUSHPULL_RETURN_IF_ERROR(queue_.Push(std::move(frame)));
  if (!is_blocked_) ScheduleFlush();
  return absl::OkStatus();
}

void TcpConnection::Flush() {
  if (!stream_.is_open() || is_blocked_) return;
  size_t total = 0;
  while (!queue_.empty() || stream_.has_unsent()) {
    if (total >= kBytesPerTurn) return ScheduleFlush();
    const std::span<const iovec> buffers = queue_.NextBuffers(loop().Now());
    // Frames may wait for room in the ring. TLS may still have bytes for the socket then.
    if (buffers.empty() && !stream_.has_unsent()) break;
    const absl::StatusOr<Transfer> sent = stream_.Send(buffers);
    if (!sent.ok()) return Fail(sent.status());
    queue_.Consume(sent->num_bytes);
    total += sent->num_bytes;
    is_blocked_ = sent->wait == Transfer::Wait::kWritable;
    // kReadable: the TLS handshake needs the peer first; Read flushes after it.
    if (sent->wait != Transfer::Wait::kNothing) break;
  }
  if (watched_ != 0) WatchForPeer();
  // A handshake step in Send may have received application data, which epoll does not report again.
  if (IsOpen() && stream_.has_read_ahead()) ScheduleRead();
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
  // The owner may close or pause the connection in any frame, so IsOpen is checked each time.
  while (IsOpen() && total < kBytesPerTurn) {
    const absl::StatusOr<Transfer> got = stream_.Receive(reader().NextBuffers());
    if (!got.ok()) return Fail(got.status());
    total += got->num_bytes;
    const absl::Status consumed =
        got->num_bytes > 0 ? reader().Consume(got->num_bytes, loop().Now()) : absl::OkStatus();
    if (!consumed.ok()) return Fail(consumed);
    if (got->wait != Transfer::Wait::kNothing) break;  // epoll reports when there is more
  }
  if (stream_.is_encrypted()) FlushAfterReading();
}

// Received bytes may have completed the TLS handshake, which queued frames wait for, or need an
// answer from TLS itself (a key update). epoll does not report what TLS has read ahead.
void TcpConnection::FlushAfterReading() {
  if (!is_blocked_ && (!queue_.empty() || stream_.has_unsent())) ScheduleFlush();
  if (IsOpen() && stream_.has_read_ahead()) ScheduleRead();
}

// For bytes that were read while there was no owner, or that wait for the next turn.
void TcpConnection::ScheduleRead() {
  if (std::exchange(is_read_scheduled_, true)) return;
  loop().Post([self = Self()] {
    self->is_read_scheduled_ = false;
    if (!self->IsOpen()) return;
    const absl::Status taken = self->reader().Consume(0, self->loop().Now());
    if (!taken.ok()) return self->Fail(taken);
    if (self->stream_.has_read_ahead()) self->Read();
  });
}

// Credit is returned at once, not at the end of the turn: the peer may have run out of room.
void TcpConnection::OnFrame(const ReceivedFrame& frame) {
  FrameStream::OnFrame(frame);
  const uint64_t credit = rings_ && stream_.is_open() ? rings_->incoming.TakeCredit() : 0;
  if (credit == 0) return;
  queue_.PushCredit(credit, loop().Now());
  Flush();
}

// ---- shared memory ----

// A peer at another address cannot reach shared memory.
std::optional<ShmOffer> TcpConnection::OfferSharedMemory() {
  if (options_.shm == nullptr || !IsToOwnAddress(stream_.socket())) return std::nullopt;
  absl::StatusOr<DescriptorInbox> inbox = options_.shm->OpenInbox();
  if (!inbox.ok()) {
    options_.shm->WarnOnce(peer(), inbox.status());
    return std::nullopt;
  }
  inbox_.emplace(*std::move(inbox));
  return inbox_->address();
}

absl::Status TcpConnection::UseSharedMemory(const HelloAckMeta& ack) {
  if (!inbox_) return absl::OkStatus();
  const DescriptorInbox inbox = *std::exchange(inbox_, std::nullopt);
  if (!ack.shm_made.ok()) {
    options_.shm->WarnOnce(peer(), ack.shm_made);
    return absl::OkStatus();
  }
  // From now on the peer sends payloads through shared memory, which must be this one.
  const absl::StatusOr<FileDescriptor> memory = inbox.Take();
  if (!memory.ok()) return absl::DataLossError("claims to have sent shared memory, but has not");
  absl::StatusOr<ShmSegment> segment = ShmSegment::Attach(*memory);
  if (absl::IsInvalidArgument(segment.status()))
    return absl::DataLossError(absl::StrCat("sent ", segment.status().message()));
  if (!segment.ok()) return absl::UnavailableError(segment.status().message());
  if (ack.shm_proof != segment->proof())
    return absl::DataLossError("sent shared memory that is not that of this connection");
  UseRings(*std::move(segment), ShmSide::kConnecting);
  return absl::OkStatus();
}

void TcpConnection::MakeSharedMemory(const HelloMeta& hello, HelloAckMeta& ack) {
  if (options_.shm == nullptr) {
    ack.shm_made = absl::FailedPreconditionError("it uses sockets only");
    return;
  }
  // A peer whose messages were forwarded here has no memory in common.
  if (hello.host != options_.host) {
    ack.shm_made = absl::FailedPreconditionError("it is not on this host");
    return;
  }
  absl::StatusOr<ShmSegment> made = options_.shm->MakeFor(*hello.shm);
  ack.shm_made = made.status();
  if (!made.ok()) return;
  ack.shm_proof = made->proof();
  segment_.emplace(*std::move(made));
}

void TcpConnection::UseRings(ShmSegment segment, ShmSide side) {
  rings_.emplace(std::move(segment), side, options_.shm->prefix());
  reader().UseRing(rings_->incoming, rings_->regions);
  queue_.UseRing(rings_->outgoing, rings_->regions);
}

void TcpConnection::Share(std::shared_ptr<const SharedMemory> memory, ShareRefused on_refused) {
  if (!rings_) return;
  Send({.header = {.type = FrameType::kRegion},
        .meta = rings_->regions.Offer(std::move(memory), std::move(on_refused)),
        .payload = {}});
}

absl::Status TcpConnection::TakeMemoryFrame(const ReceivedFrame& frame) {
  if (!rings_) return FrameStream::TakeMemoryFrame(frame);
  if (frame.header.type == FrameType::kCredit) return TakeCredit(frame);
  PUSHPULL_ASSIGN_OR_RETURN(std::vector<std::byte> answer, rings_->regions.Answer(frame.meta));
  if (!answer.empty())
    Send({.header = {.type = FrameType::kRegion}, .meta = std::move(answer), .payload = {}});
  return absl::OkStatus();
}

absl::Status TcpConnection::TakeCredit(const ReceivedFrame& frame) {
  ByteReader reader(frame.meta);
  const auto num_bytes = reader.Get<uint64_t>();
  if (!reader.ok()) return absl::DataLossError("sent a credit without a number of bytes");
  PUSHPULL_RETURN_IF_ERROR(rings_->outgoing.AddCredit(num_bytes));
  if (!is_blocked_ && !queue_.empty()) ScheduleFlush();  // frames may have waited for room
  return absl::OkStatus();
}

// ---- the loop's watch ----

void TcpConnection::WatchForPeer() {
  const uint32_t events = is_blocked_ ? EPOLLIN | EPOLLOUT : EPOLLIN;
  if (watched_ == events) return;
  const bool is_new = watched_ == 0;
  watched_ = events;
  const absl::Status watched =
      is_new
          ? loop().Watch(
                stream_.socket(), events, [self = Self()](uint32_t ready) { self->OnReady(ready); })
          : loop().Rewatch(stream_.socket(), events);
  if (watched.ok()) return;
  if (is_new) watched_ = 0;
  FailLater(watched);
}

void TcpConnection::Unwatch() {
  if (std::exchange(watched_, 0) != 0) loop().Unwatch(stream_.socket());
}

}  // namespace pushpull
