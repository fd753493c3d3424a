// SPDX-License-Identifier: Apache-2.0
//
// One connection on one event loop: frames in, frames out. What frames mean is up to the owner: a
// handshake first (stream_listener.cc, stream_connector.h), then a channel (stream_channel.h). How
// bytes move is up to the subclass (tcp/tcp_connection.h, grpc/grpc_stream.h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/event_loop.h"
#include "runtime/tls/peer_identity.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/stream/frame_reader.h"

namespace pushpull {

// Receives what arrives, on the loop's thread, never from inside a call to the stream. May call
// anything on the stream, Close included, and may destroy itself after Close or Pause.
class FrameStreamOwner {
 public:
  virtual ~FrameStreamOwner() = default;
  virtual std::span<std::byte> PayloadBuffer(const FrameHeader&) { return {}; }
  virtual bool TakesInPlace(const FrameHeader&) { return false; }
  virtual void OnFrame(const ReceivedFrame& frame) = 0;
  // The rest of a payload for which PayloadBuffer was called will never come; OnClosed follows.
  virtual void OnPayloadLost(const FrameHeader&) {}
  // The stream is closed, `why` names the peer; nothing follows.
  virtual void OnClosed(const absl::Status& why) = 0;
};

// Held by shared_ptr because its own callbacks may destroy its owner. Thread-confined to the loop.
class FrameStream : protected FrameSink, public std::enable_shared_from_this<FrameStream> {
 public:
  ~FrameStream() override = default;
  FrameStream(const FrameStream&) = delete;
  FrameStream& operator=(const FrameStream&) = delete;

  // Starts or resumes handing frames to `owner`, which stays valid until Pause, Close or OnClosed.
  void Start(FrameStreamOwner& owner);
  // Hands out nothing until the next Start; what has arrived is kept.
  void Pause();
  // Closes without a call to the owner. Queued frames are dropped; where the stream lends payloads
  // to a library it waits until that has released them.
  void Close();
  // Closes and calls the owner's OnClosed.
  void Fail(const absl::Status& why);
  // Sends `frame` as the last one, then closes without a call to the owner.
  virtual void CloseAfter(OutgoingFrame frame) = 0;

  // Queues a frame; dropped once the stream is closed. When the queue is full the stream fails.
  void Send(OutgoingFrame frame);

  // Moves the connection to another loop, as a new stream; this one is over, without a call to the
  // owner. Called between handshake and channel, on this stream's loop.
  // kDataLoss: the peer sent more than it may have by now; the stream stays as it is.
  absl::StatusOr<std::shared_ptr<FrameStream>> MoveTo(EventLoop& loop, std::string peer);

  // For frames that are sent from now on.
  virtual void SetPayloadChecksums(bool has_checksums) = 0;
  virtual size_t queued_bytes() const = 0;
  virtual absl::string_view kind() const = 0;  // as Channel::kind
  const std::string& peer() const { return peer_; }
  // Who the peer's certificate says it is, once a frame was received. Called on an open stream.
  // kPermissionDenied: nobody that this process should talk to.
  virtual absl::StatusOr<PeerIdentity> identity() const = 0;
  EventLoop& loop() { return loop_; }

  // ---- Shared memory, where the subclass has it; these defaults are for those that do not. ----

  // Connecting side: where it takes memory, for the hello.
  virtual std::optional<ShmOffer> OfferSharedMemory() { return std::nullopt; }
  // Connecting side: applies the peer's answer. kDataLoss: the peer claims memory it does not have.
  virtual absl::Status UseSharedMemory(const HelloAckMeta&) { return absl::OkStatus(); }
  // Accepting side: makes it, sends it to where the hello says, and fills in shm_made and
  // shm_proof.
  virtual void MakeSharedMemory(const HelloMeta& hello, HelloAckMeta& ack);
  virtual void Share(std::shared_ptr<const SharedMemory>, ShareRefused) {}
  // A kCredit or kRegion frame. kDataLoss: the peer must not send it.
  virtual absl::Status TakeMemoryFrame(const ReceivedFrame& frame);

 protected:
  // `peer` begins every error text.
  FrameStream(EventLoop& loop, std::string peer);

  // Posts a Flush, unless one is posted already: what runs now queues its frames first, so that
  // many small ones leave in one system call or message.
  void ScheduleFlush();
  void FailLater(const absl::Status& why);
  FrameReader& reader() { return reader_; }
  const FrameReader& reader() const { return reader_; }

  // The reader's calls.
  std::span<std::byte> PayloadBuffer(const FrameHeader& header) final {
    return owner_->PayloadBuffer(header);
  }
  bool TakesInPlace(const FrameHeader& header) final { return owner_->TakesInPlace(header); }
  void OnFrame(const ReceivedFrame& frame) override { owner_->OnFrame(frame); }
  bool IsOpen() const final { return owner_ != nullptr && is_connected(); }

 private:
  virtual bool is_connected() const = 0;
  virtual bool has_unread() const = 0;
  // Queues a frame and schedules its Flush, unless an event will cause one anyway. Errors are those
  // of FrameQueue::Push.
  virtual absl::Status Enqueue(OutgoingFrame frame) = 0;
  // Writes as much as the connection takes. Does nothing on a closed stream.
  virtual void Flush() = 0;
  // There is an owner from now on; none any more.
  virtual void Resume() = 0;
  virtual void Suspend() = 0;
  // Ends the connection, which is_connected, and drops the queue.
  virtual void Disconnect() = 0;
  virtual std::shared_ptr<FrameStream> Rehome(EventLoop& loop, std::string peer) = 0;

  void DisconnectOnce();
  void ReportFailure();

  EventLoop& loop_;
  const std::string peer_;
  FrameStreamOwner* owner_ = nullptr;
  FrameReader reader_;
  absl::Status failure_;  // why it is closed, where that was not our own Close
  bool is_flush_scheduled_ = false;
  bool is_overflown_ = false;  // FailLater for a full queue has been posted
};

}  // namespace pushpull
