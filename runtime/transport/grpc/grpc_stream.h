// SPDX-License-Identifier: Apache-2.0
//
// One stream on one event loop: frames in, frames out. What a TcpConnection is to the tcp channel:
// who the peer is and what frames mean is for its owner, first a handshake and then a channel.
//
//   gRPC's threads: receive, send --> inbox --> the loop: bytes to their final places, frames
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "runtime/base/event_loop.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/frame_queue.h"
#include "runtime/transport/grpc/send_batch.h"
#include "runtime/transport/grpc/wire.h"
#include "runtime/transport/tcp/frame_reader.h"

namespace pushpull {

// Told what arrives, on the loop's thread, never from inside a call to the stream. May call
// anything on the stream, Close included, and may end itself after Close or Pause.
class GrpcStreamOwner {
 public:
  virtual ~GrpcStreamOwner() = default;
  virtual std::span<std::byte> PayloadBuffer(const FrameHeader& header) = 0;
  virtual void OnFrame(const ReceivedFrame& frame) = 0;
  // A payload for which PayloadBuffer was called will never be whole; OnClosed follows.
  virtual void OnPayloadLost(const FrameHeader& header) = 0;
  // The stream is closed, `why` names the peer; nothing follows.
  virtual void OnClosed(const absl::Status& why) = 0;
};

enum class StreamSide { kConnecting, kAccepting };

struct StreamSettings {
  StreamSide side = StreamSide::kConnecting;
  std::string peer;  // begins every error text
  size_t frames_max = 0;
};

// Held by shared_ptr because its own callbacks may end its owner. Thread-confined to the loop, but
// for what the wire calls.
class GrpcStream final : public WireEvents,
                         private FrameSink,
                         public std::enable_shared_from_this<GrpcStream> {
 public:
  // Both outlive the stream.
  GrpcStream(EventLoop& loop,
             std::shared_ptr<Wire> wire,
             StreamSettings settings,
             InFlight& in_flight);

  // Starts or resumes to hand frames to `owner`, which stays valid until Pause, Close or OnClosed.
  void Start(GrpcStreamOwner& owner);
  // Hands out nothing until the next Start; what is there is kept.
  void Pause();
  // Ends the stream without a word to the owner. What waits to be sent is dropped, and nothing of
  // it is read any more when this returns, but for what its owners keep on the accepting side.
  void Close();
  // Ends the stream and tells the owner.
  void Fail(const absl::Status& why);

  // Sends this as the last frame, then ends the stream without a word.
  void CloseWith(OutgoingFrame frame);
  // Whether more has come than was handed out.
  bool has_unread() const ABSL_LOCKS_EXCLUDED(mu_);
  // Gives the wire up; this stream is over, without a word.
  std::shared_ptr<Wire> ReleaseWire();

  // Queues a frame; dropped after the end. When the queue is full the stream fails.
  void Send(OutgoingFrame frame);
  void SetPayloadChecksums(bool has_checksums) { has_checksums_ = has_checksums; }
  size_t queued_bytes() const { return waiting_.num_bytes() + num_writing_bytes_; }
  const std::string& peer() const { return settings_.peer; }
  EventLoop& loop() { return loop_; }

  // The wire's calls.
  void OnRead(IncomingMessage message) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnWritten() override ABSL_LOCKS_EXCLUDED(mu_);
  void OnEnded(const absl::Status& why) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The reader's calls.
  std::span<std::byte> PayloadBuffer(const FrameHeader& header) override {
    return owner_->PayloadBuffer(header);
  }
  void OnFrame(const ReceivedFrame& frame) override { owner_->OnFrame(frame); }
  bool IsOpen() const override { return wire_ != nullptr && owner_ != nullptr; }

  OwnerlessPayloads ownerless() const {
    return settings_.side == StreamSide::kConnecting ? OwnerlessPayloads::kLend
                                                     : OwnerlessPayloads::kCopy;
  }
  void ScheduleFlush();
  void Flush();
  // Posts a turn, unless one is posted.
  void ScheduleTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeTurn() ABSL_LOCKS_EXCLUDED(mu_);
  void TakeInbox() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ReadCurrent();
  void ReadOnOrEnd() ABSL_LOCKS_EXCLUDED(mu_);
  void FailLater(const absl::Status& why);
  void CloseWire();
  void Report();

  EventLoop& loop_;
  std::shared_ptr<Wire> wire_;  // null: closed
  const StreamSettings settings_;
  GrpcStreamOwner* owner_ = nullptr;
  absl::Status failure_;  // why it is closed, where that was not our own Close

  FrameReader reader_;
  std::optional<IncomingMessage> current_;  // from next_slice_ on it is not read yet
  size_t next_slice_ = 0;

  FrameQueue waiting_;
  PayloadLoans loans_;
  bool has_checksums_ = false;
  bool is_writing_ = false;
  size_t num_writing_bytes_ = 0;
  bool is_flush_scheduled_ = false;
  bool is_overflown_ = false;  // a failure for a full queue is on its way

  // Between gRPC's threads and the loop.
  mutable Mutex mu_;
  std::optional<IncomingMessage> inbox_ ABSL_GUARDED_BY(mu_);
  bool is_reading_ ABSL_GUARDED_BY(mu_) = false;
  bool is_written_ ABSL_GUARDED_BY(mu_) = false;
  bool is_turn_posted_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
