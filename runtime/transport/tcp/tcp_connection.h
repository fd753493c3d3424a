// SPDX-License-Identifier: Apache-2.0
//
// A stream of frames over one socket, with payloads through shared memory if both ends have it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/transport/shm/shm_segment.h"
#include "runtime/transport/stream/frame_stream.h"
#include "runtime/transport/stream/transport_options.h"
#include "runtime/transport/tcp/send_queue.h"
#include "runtime/transport/tcp/tcp_stream.h"

namespace pushpull {

// Thread-confined to the loop, which holds the connection while it is started.
class TcpConnection final : public FrameStream {
 public:
  TcpConnection(EventLoop& loop,
                TcpStream stream,
                std::string peer,
                const TransportOptions& options);

  void CloseAfter(OutgoingFrame frame) override;
  void SetPayloadChecksums(bool has_checksums) override {
    queue_.SetPayloadChecksums(has_checksums);
  }
  size_t queued_bytes() const override { return queue_.num_bytes(); }
  absl::string_view kind() const override { return rings_ ? "shm" : "tcp"; }
  absl::StatusOr<PeerIdentity> identity() const override { return stream_.peer(); }

  std::optional<ShmOffer> OfferSharedMemory() override;
  absl::Status UseSharedMemory(const HelloAckMeta& ack) override;
  void MakeSharedMemory(const HelloMeta& hello, HelloAckMeta& ack) override;
  void Share(std::shared_ptr<const SharedMemory> memory, ShareRefused on_refused) override;
  absl::Status TakeMemoryFrame(const ReceivedFrame& frame) override;

 private:
  struct Rings {
    Rings(ShmSegment mapped, ShmSide side, std::string prefix)
        : segment(std::move(mapped)),
          outgoing(segment.Outgoing(side)),
          incoming(segment.Incoming(side)),
          regions(std::move(prefix)) {}
    const ShmSegment segment;
    PayloadRingWriter outgoing;
    PayloadRingReader incoming;
    SharedRegions regions;
  };

  bool is_connected() const override { return stream_.is_open(); }
  bool has_unread() const override { return reader().num_staged() > 0; }
  absl::Status Enqueue(OutgoingFrame frame) override;
  void Flush() override;
  void Resume() override;
  void Suspend() override { Unwatch(); }
  void Disconnect() override;
  std::shared_ptr<FrameStream> Rehome(EventLoop& loop, std::string peer) override;
  // Called by the reader.
  void OnFrame(const ReceivedFrame& frame) override;

  std::shared_ptr<TcpConnection> Self();
  void UseRings(ShmSegment segment, ShmSide side);
  absl::Status TakeCredit(const ReceivedFrame& frame);
  void OnReady(uint32_t events);
  void Read();
  void ScheduleRead();
  void FlushAfterReading();
  void WatchForPeer();
  void Unwatch();

  const TransportOptions options_;
  TcpStream stream_;
  SendQueue queue_;
  std::optional<DescriptorInbox> inbox_;  // connecting side, until the ack
  std::optional<ShmSegment> segment_;     // accepting side: made in the handshake, not used yet
  std::optional<Rings> rings_;
  uint32_t watched_ = 0;  // events; 0 while not started
  bool is_read_scheduled_ = false;
  bool is_blocked_ = false;  // the socket takes no more until EPOLLOUT
};

}  // namespace pushpull
