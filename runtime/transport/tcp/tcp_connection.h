// SPDX-License-Identifier: Apache-2.0
//
// One socket on one event loop: frames in, frames out. Who the peer is and what frames mean is for
// its owner, first a handshake and then a channel.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "runtime/base/event_loop.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/shm/shm_segment.h"
#include "runtime/transport/tcp/frame_reader.h"
#include "runtime/transport/tcp/send_queue.h"
#include "runtime/transport/tcp/tcp_stream.h"

namespace pushpull {

// Told what arrives, on the loop's thread, never from inside a call to the connection. May call
// anything on the connection, Close included, and may end itself after Close or Pause.
class TcpConnectionOwner {
 public:
  virtual ~TcpConnectionOwner() = default;
  virtual std::span<std::byte> PayloadBuffer(const FrameHeader& header) = 0;
  virtual bool TakesInPlace(const FrameHeader&) { return false; }
  virtual void OnFrame(const ReceivedFrame& frame) = 0;
  // A payload for which PayloadBuffer was called will never be whole; OnClosed follows.
  virtual void OnPayloadLost(const FrameHeader& header) = 0;
  // The connection is closed, `why` names the peer; nothing follows.
  virtual void OnClosed(const absl::Status& why) = 0;
};

// Held by shared_ptr because its own callbacks may end its owner: the loop holds it while it is
// started. Thread-confined to the loop.
class TcpConnection final : public FrameSink, public std::enable_shared_from_this<TcpConnection> {
 public:
  // `peer` begins every error text.
  TcpConnection(EventLoop& loop, TcpStream stream, std::string peer, size_t frames_max);

  // Starts or resumes reading for `owner`, which stays valid until Pause, Close or OnClosed.
  void Start(TcpConnectionOwner& owner);
  // Stops reading until the next Start; what is read ahead is kept.
  void Pause();
  // Ends the connection without a word to the owner. What waits to be sent is dropped.
  void Close();
  // Ends the connection and tells the owner.
  void Fail(const absl::Status& why);

  // Payloads of frames that are sent and read from now on go through `segment`. Between handshake
  // and Start.
  void UseSharedMemory(ShmSegment segment, ShmSide side);
  bool has_shared_memory() const { return rings_.has_value(); }
  // Beside the rings; where there is shared memory.
  SharedRegions& regions() { return rings_->regions; }
  // The peer gives room in its ring back; frames may have waited for it.
  absl::Status TakeCredit(uint64_t num_bytes);

  // Takes the stream away from this connection. kDataLoss: the peer has sent more than it should
  // have by now, the connection is closed.
  absl::StatusOr<TcpStream> ReleaseStream();

  // Queues a frame; dropped after the end. When the queue is full the connection fails.
  void Send(OutgoingFrame frame);
  SendQueue& queue() { return queue_; }
  const std::string& peer() const { return peer_; }
  EventLoop& loop() { return loop_; }

  // The reader's calls.
  std::span<std::byte> PayloadBuffer(const FrameHeader& header) override {
    return owner_->PayloadBuffer(header);
  }
  bool TakesInPlace(const FrameHeader& header) override { return owner_->TakesInPlace(header); }
  void OnFrame(const ReceivedFrame& frame) override;
  bool IsOpen() const override { return stream_.is_open() && owner_ != nullptr; }

 private:
  struct Rings {
    Rings(ShmSegment mapped, ShmSide side)
        : segment(std::move(mapped)),
          outgoing(segment.Outgoing(side)),
          incoming(segment.Incoming(side)),
          regions(segment.NamePrefix()) {}
    const ShmSegment segment;
    PayloadRingWriter outgoing;
    PayloadRingReader incoming;
    SharedRegions regions;
  };

  void OnReady(uint32_t events);
  void Read();
  void ScheduleRead();
  void Flush();
  void ScheduleFlush();
  void FlushAfterReading();
  void FailLater(const absl::Status& why);
  void WatchFor(uint32_t events);
  void Unwatch();
  void CloseStream();
  void Report();

  EventLoop& loop_;
  TcpStream stream_;
  const std::string peer_;
  TcpConnectionOwner* owner_ = nullptr;
  std::optional<Rings> rings_;
  FrameReader reader_;
  SendQueue queue_;
  absl::Status failure_;  // why the socket is closed, where it was not our own Close
  uint32_t watched_ = 0;  // events; 0 while not started
  bool is_flush_scheduled_ = false;
  bool is_read_scheduled_ = false;
  bool is_blocked_ = false;    // the socket takes no more until EPOLLOUT
  bool is_overflown_ = false;  // a failure for a full queue is on its way
};

}  // namespace pushpull
