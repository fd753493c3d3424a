// SPDX-License-Identifier: Apache-2.0
//
// One connection on one event loop: frames in, frames out. The owner interprets frames: first a
// handshake (stream_listener.cc, stream_connector.h), then a channel (stream_channel.h). The
// subclass moves bytes (tcp/tcp_connection.h, grpc/grpc_stream.h).
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
  // The rest of a payload for which PayloadBuffer was called will never arrive; OnClosed follows.
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
  // Closes without a call to the owner. Queued frames are dropped; a stream that lends payloads to
  // a library waits until they are released.
  void Close();
  // Closes and calls the owner's OnClosed.
  void Fail(const absl::Status& why);
  // Sends `frame` as the last one, then closes without a call to the owner.
  virtual void CloseAfter(OutgoingFrame frame) = 0;

  // Queues a frame; dropped once the stream is closed. When the queue is full the stream fails.
  void Send(OutgoingFrame frame);

  // Moves the connection to another loop, as a new stream; this one ends without a call to the
  // owner. Called between handshake and channel, on this stream's loop. kDataLoss: the peer sent
  // more than it may have by now; the stream stays as it is.
  absl::StatusOr<std::shared_ptr<FrameStream>> MoveTo(EventLoop& loop, std::string peer);

  // For frames sent from now on.
  virtual void SetPayloadChecksums(bool has_checksums) = 0;
  virtual size_t queued_bytes() const = 0;
  virtual absl::string_view kind() const = 0;  // as Channel::kind
  const std::string& peer() const { return peer_; }
  // The peer's identity by its certificate, once a frame was received. Called on an open stream.
  // kPermissionDenied: a peer that this process must not talk to.
  virtual absl::StatusOr<PeerIdentity> identity() const = 0;
  EventLoop& loop() { return loop_; }

  // ---- Shared memory, if the subclass has it; these defaults are for subclasses without it. ----

  // Connecting side: the address, for the hello, to which memory can be sent.
  virtual std::optional<ShmOffer> OfferSharedMemory() { return std::nullopt; }
  // Connecting side: applies the peer's answer. kDataLoss: the peer claims memory it does not have.
  virtual absl::Status UseSharedMemory(const HelloAckMeta&) { return absl::OkStatus(); }
  // Accepting side: makes memory, sends it to the address in the hello, and fills in shm_made and
  // shm_proof.
  virtual void MakeSharedMemory(const HelloMeta& hello, HelloAckMeta& ack);
  virtual void Share(std::shared_ptr<const SharedMemory>, ShareRefused) {}
  // A kCredit or kRegion frame. kDataLoss: the peer must not send it.
  virtual absl::Status TakeMemoryFrame(const ReceivedFrame& frame);

 protected:
  // `peer` begins every error text.
  FrameStream(EventLoop& loop, std::string peer);

  // Posts a Flush, unless one is already posted: the running code queues its frames first, so that
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
  // Queues a frame and schedules its Flush, unless an event will cause one anyway. Errors as for
  // FrameQueue::Push.
  virtual absl::Status Enqueue(OutgoingFrame frame) = 0;
  // Writes as much as the connection takes. Does nothing on a closed stream.
  virtual void Flush() = 0;
  // The stream has an owner from now on; it no longer has one.
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
  absl::Status failure_;  // why it is closed, if not by our own Close
  bool is_flush_scheduled_ = false;
  bool is_overflown_ = false;  // FailLater for a full queue has been posted
};

}  // namespace pushpull
