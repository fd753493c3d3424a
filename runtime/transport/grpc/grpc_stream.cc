// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/grpc_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// Like the tcp channel's batches (tcp/send_queue.h).
constexpr size_t kBatchBytes = 256 * 1024;
constexpr size_t kBatchFrames = 32;

// Copying this few bytes is cheaper than lending them.
constexpr size_t kCopiedBytesMax = 4096;

}  // namespace

std::shared_ptr<GrpcStream> GrpcStream::Open(EventLoop& loop,
                                             std::shared_ptr<Wire> wire,
                                             StreamSettings settings,
                                             InFlight& in_flight) {
  auto stream = std::make_shared<GrpcStream>(loop, wire, std::move(settings), in_flight);
  wire->Start(stream);
  return stream;
}

GrpcStream::GrpcStream(EventLoop& loop,
                       std::shared_ptr<Wire> wire,
                       StreamSettings settings,
                       InFlight& in_flight)
    : FrameStream(loop, std::move(settings.peer)),
      wire_(std::move(wire)),
      side_(settings.side),
      in_flight_(in_flight),
      waiting_(settings.frames_max),
      loans_(loop, in_flight) {}

void GrpcStream::Resume() {
  MutexLock lock(mu_);
  ScheduleTurn();
}

bool GrpcStream::has_unread() const {
  MutexLock lock(mu_);
  const bool is_in_message = current_ && next_slice_ < current_->slices.size();
  return reader().num_staged() > 0 || is_in_message || inbox_;
}

std::shared_ptr<FrameStream> GrpcStream::Rehome(EventLoop& loop, std::string peer) {
  return Open(loop,
              std::exchange(wire_, nullptr),
              {.side = side_, .peer = std::move(peer), .frames_max = waiting_.frames_max()},
              in_flight_);
}

void GrpcStream::CloseAfter(OutgoingFrame frame) {
  Pause();
  const std::shared_ptr<Wire> wire = std::exchange(wire_, nullptr);
  waiting_.Clear();
  if (wire == nullptr || !waiting_.Push(std::move(frame)).ok()) return;
  wire->EndWith(NextMessage());
}

void GrpcStream::Disconnect() {
  std::exchange(wire_, nullptr)->End();
  waiting_.Clear();
  num_writing_bytes_ = 0;
  if (side_ == StreamSide::kConnecting) loans_.AwaitAll();
}

// ---- sending ----

absl::Status GrpcStream::Enqueue(OutgoingFrame frame) {
  PUSHPULL_RETURN_IF_ERROR(waiting_.Push(std::move(frame)));
  if (!is_writing_) ScheduleFlush();
  return absl::OkStatus();
}

void GrpcStream::Flush() {
  if (wire_ == nullptr || is_writing_ || waiting_.empty()) return;
  const size_t before = waiting_.num_bytes();
  OutgoingMessage message = NextMessage();
  num_writing_bytes_ = before - waiting_.num_bytes();
  is_writing_ = true;
  wire_->Write(std::move(message));
}

// Takes the most urgent frames, always complete ones and at least one if any waits: enough to
// amortize the cost of a message.
OutgoingMessage GrpcStream::NextMessage() {
  const SteadyTime now = loop().Now();
  OutgoingMessage message;
  std::vector<std::byte> own;
  size_t num_bytes = 0;
  for (size_t i = 0; i < kBatchFrames && num_bytes < kBatchBytes && !waiting_.empty(); ++i) {
    OutgoingFrame frame = waiting_.Pop();
    num_bytes += WireBytes(frame);
    std::array<std::byte, kFrameHeaderBytes> header;
    EncodeHead(frame, now, has_checksums_, header);
    own.insert(own.end(), header.begin(), header.end());
    own.insert(own.end(), frame.meta.begin(), frame.meta.end());
    const std::span<const std::byte> payload = frame.payload.bytes;
    // Closing the accepting side does not wait for loans to return.
    const bool must_copy = frame.payload.owner == nullptr && side_ == StreamSide::kAccepting;
    if (must_copy || payload.size() <= kCopiedBytesMax) {
      own.insert(own.end(), payload.begin(), payload.end());
    } else {
      message.push_back(
          {.own = std::exchange(own, {}), .payload = loans_.Lend(std::move(frame.payload))});
    }
  }
  if (!own.empty()) message.push_back({.own = std::move(own), .payload = nullptr});
  return message;
}

// ---- receiving ----

void GrpcStream::OnRead(IncomingMessage message) {
  MutexLock lock(mu_);
  inbox_ = std::move(message);
  is_reading_ = false;
  ScheduleTurn();
}

void GrpcStream::OnWritten() {
  MutexLock lock(mu_);
  is_written_ = true;
  ScheduleTurn();
}

void GrpcStream::OnEnded(const absl::Status& why) {
  MutexLock lock(mu_);
  if (!end_) end_ = why;
  ScheduleTurn();
}

void GrpcStream::ScheduleTurn() {
  if (std::exchange(is_turn_posted_, true)) return;
  loop().Post(
      [self = std::static_pointer_cast<GrpcStream>(shared_from_this())] { self->TakeTurn(); });
}

void GrpcStream::TakeTurn() {
  bool is_written = false;
  {
    MutexLock lock(mu_);
    is_turn_posted_ = false;
    is_written = std::exchange(is_written_, false);
  }
  if (is_written) {
    is_writing_ = false;
    num_writing_bytes_ = 0;
    Flush();
  }
  if (!IsOpen()) return;
  if (!current_) TakeInbox();
  const absl::Status read = ReadCurrent();
  if (!read.ok()) return Fail(read);
  if (IsOpen()) ReadOnOrEnd();
}

void GrpcStream::TakeInbox() {
  MutexLock lock(mu_);
  current_ = std::exchange(inbox_, std::nullopt);
  next_slice_ = 0;
}

// Read is called once a message has been processed completely, so at most one waits here while gRPC
// receives the next. An end is reported only after all messages before it.
void GrpcStream::ReadOnOrEnd() {
  std::optional<absl::Status> end;
  {
    MutexLock lock(mu_);
    if (inbox_) return ScheduleTurn();
    end = end_;
    if (!end && std::exchange(is_reading_, true)) return;
  }
  if (end) return Fail(*end);
  wire_->Read();
}

absl::Status GrpcStream::ReadCurrent() {
  const SteadyTime now = current_ ? current_->received_at : loop().Now();
  absl::Status read = reader().Consume(0, now);  // frames that were staged before a Pause
  while (read.ok() && IsOpen() && current_ && next_slice_ < current_->slices.size()) {
    std::span<const std::byte>& slice = current_->slices[next_slice_];
    const iovec into = reader().NextBuffers().front();
    const size_t part = std::min(into.iov_len, slice.size());
    std::memcpy(into.iov_base, slice.data(), part);
    slice = slice.subspan(part);
    if (slice.empty()) ++next_slice_;
    read = reader().Consume(part, now);
  }
  if (current_ && next_slice_ == current_->slices.size()) current_.reset();
  return read;
}

}  // namespace pushpull
