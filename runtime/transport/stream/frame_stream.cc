// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/stream/frame_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {

FrameStream::FrameStream(EventLoop& loop, std::string peer)
    : loop_(loop), peer_(std::move(peer)), reader_(*this) {}

void FrameStream::Start(FrameStreamOwner& owner) {
  owner_ = &owner;
  if (is_connected()) return Resume();
  // The stream failed while nobody owned it. The owner is not called from inside its own call.
  loop_.Post([self = shared_from_this()] { self->ReportFailure(); });
}

void FrameStream::Pause() {
  owner_ = nullptr;
  Suspend();
}

void FrameStream::Close() {
  owner_ = nullptr;
  DisconnectOnce();
}

void FrameStream::Send(OutgoingFrame frame) {
  if (is_overflown_ || !is_connected()) return;
  const absl::Status queued = Enqueue(std::move(frame));
  if (queued.ok()) return;
  is_overflown_ = true;
  FailLater(queued);
}

void FrameStream::ScheduleFlush() {
  if (std::exchange(is_flush_scheduled_, true)) return;
  loop_.Post([self = shared_from_this()] {
    self->is_flush_scheduled_ = false;
    self->Flush();
  });
}

absl::StatusOr<std::shared_ptr<FrameStream>> FrameStream::MoveTo(EventLoop& loop,
                                                                 std::string peer) {
  if (has_unread()) return absl::DataLossError("sent more before its hello was answered");
  Pause();
  return Rehome(loop, std::move(peer));
}

void FrameStream::Fail(const absl::Status& why) {
  if (!is_connected()) return;
  // Each call to the owner may release the last other reference to this stream.
  const std::shared_ptr<FrameStream> self = shared_from_this();
  failure_ = absl::Status(why.code(), absl::StrCat(peer_, ": ", why.message()));
  DisconnectOnce();
  const FrameHeader* const lost = reader_.UnfinishedPayload();
  if (lost != nullptr && owner_ != nullptr) owner_->OnPayloadLost(*lost);
  ReportFailure();  // unless OnPayloadLost closed it
}

void FrameStream::FailLater(const absl::Status& why) {
  loop_.Post([self = shared_from_this(), why] { self->Fail(why); });
}

void FrameStream::ReportFailure() {
  if (owner_ != nullptr) std::exchange(owner_, nullptr)->OnClosed(failure_);
}

void FrameStream::DisconnectOnce() {
  if (!is_connected()) return;
  const std::shared_ptr<FrameStream> self = shared_from_this();  // the loop's watch may be the last
  Disconnect();
}

void FrameStream::MakeSharedMemory(const HelloMeta&, HelloAckMeta& ack) {
  ack.shm_made = absl::FailedPreconditionError(absl::StrCat("it uses ", kind()));
}

absl::Status FrameStream::TakeMemoryFrame(const ReceivedFrame&) {
  return absl::DataLossError("sent a frame about shared memory, which this channel does not have");
}

}  // namespace pushpull
