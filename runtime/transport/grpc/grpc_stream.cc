// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/grpc_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {

GrpcStream::GrpcStream(EventLoop& loop,
                       std::shared_ptr<Wire> wire,
                       StreamSettings settings,
                       InFlight& in_flight)
    : loop_(loop),
      wire_(std::move(wire)),
      settings_(std::move(settings)),
      reader_(*this),
      waiting_(settings_.frames_max),
      loans_(loop, in_flight) {}

void GrpcStream::Start(GrpcStreamOwner& owner) {
  owner_ = &owner;
  if (wire_ == nullptr) {
    loop_.Post([self = shared_from_this()] { self->Report(); });
    return;
  }
  MutexLock lock(mu_);
  ScheduleTurn();
}

void GrpcStream::Pause() {
  owner_ = nullptr;
}

void GrpcStream::Close() {
  owner_ = nullptr;
  CloseWire();
}

void GrpcStream::CloseWith(OutgoingFrame frame) {
  owner_ = nullptr;
  const std::shared_ptr<Wire> wire = ReleaseWire();
  waiting_.Clear();
  if (wire == nullptr || !waiting_.Push(std::move(frame)).ok()) return;
  wire->EndWith(NextMessage(waiting_, loop_.Now(), false, OwnerlessPayloads::kCopy, loans_));
}

bool GrpcStream::has_unread() const {
  MutexLock lock(mu_);
  const bool is_in_message = current_ && next_slice_ < current_->slices.size();
  return reader_.num_staged() > 0 || is_in_message || inbox_;
}

std::shared_ptr<Wire> GrpcStream::ReleaseWire() {
  Pause();
  return std::exchange(wire_, nullptr);
}

// ---- sending ----

void GrpcStream::Send(OutgoingFrame frame) {
  if (wire_ == nullptr || is_overflown_) return;
  const absl::Status pushed = waiting_.Push(std::move(frame));
  if (!pushed.ok()) {
    is_overflown_ = true;
    return FailLater(pushed);
  }
  if (!is_writing_) ScheduleFlush();
}

// Sent when what runs now has run, so that many small frames become one message.
void GrpcStream::ScheduleFlush() {
  if (std::exchange(is_flush_scheduled_, true)) return;
  loop_.Post([self = shared_from_this()] {
    self->is_flush_scheduled_ = false;
    self->Flush();
  });
}

void GrpcStream::Flush() {
  if (wire_ == nullptr || is_writing_ || waiting_.empty()) return;
  const size_t before = waiting_.num_bytes();
  OutgoingMessage message = NextMessage(waiting_, loop_.Now(), has_checksums_, ownerless(), loans_);
  num_writing_bytes_ = before - waiting_.num_bytes();
  is_writing_ = true;
  wire_->Write(std::move(message));
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
  loop_.Post([self = shared_from_this()] { self->TakeTurn(); });
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

// The next message is asked for when this one is read; gRPC receives it meanwhile.
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
  const SteadyTime now = current_ ? current_->received_at : loop_.Now();
  absl::Status read = reader_.Consume(0, now);  // what it had before it was paused
  while (read.ok() && IsOpen() && current_ && next_slice_ < current_->slices.size()) {
    std::span<const std::byte>& slice = current_->slices[next_slice_];
    const iovec into = reader_.NextBuffers().front();
    const size_t part = std::min(into.iov_len, slice.size());
    std::memcpy(into.iov_base, slice.data(), part);
    slice = slice.subspan(part);
    if (slice.empty()) ++next_slice_;
    read = reader_.Consume(part, now);
  }
  if (current_ && next_slice_ == current_->slices.size()) current_.reset();
  return read;
}

// ---- the end ----

void GrpcStream::Fail(const absl::Status& why) {
  if (wire_ == nullptr) return;
  const std::shared_ptr<GrpcStream> self = shared_from_this();
  failure_ = absl::Status(why.code(), absl::StrCat(settings_.peer, ": ", why.message()));
  CloseWire();
  const FrameHeader* const lost = reader_.UnfinishedPayload();
  // The owner may end itself, which takes it from here.
  if (lost != nullptr && owner_ != nullptr) owner_->OnPayloadLost(*lost);
  Report();
}

void GrpcStream::FailLater(const absl::Status& why) {
  loop_.Post([self = shared_from_this(), why] { self->Fail(why); });
}

void GrpcStream::Report() {
  if (owner_ != nullptr) std::exchange(owner_, nullptr)->OnClosed(failure_);
}

void GrpcStream::CloseWire() {
  if (wire_ == nullptr) return;
  std::exchange(wire_, nullptr)->End();
  waiting_.Clear();
  num_writing_bytes_ = 0;
  if (settings_.side == StreamSide::kConnecting) loans_.AwaitAll();
}

}  // namespace pushpull
