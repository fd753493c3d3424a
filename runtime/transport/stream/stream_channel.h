// SPDX-License-Identifier: Apache-2.0
//
// A Channel over a stream whose handshake is done.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "runtime/transport/channel.h"
#include "runtime/transport/peer_clock.h"
#include "runtime/transport/stream/frame_stream.h"

namespace pushpull {

// Thread-confined to the stream's loop.
class StreamChannel final : public Channel, private FrameStreamOwner {
 public:
  StreamChannel(std::shared_ptr<FrameStream> stream, PeerClock clock)
      : stream_(std::move(stream)), clock_(std::move(clock)) {}
  ~StreamChannel() override { StreamChannel::Close(); }
  StreamChannel(const StreamChannel&) = delete;
  StreamChannel& operator=(const StreamChannel&) = delete;

  void Start(FrameHandler& handler) override;
  void Send(OutgoingFrame frame) override { stream_->Send(std::move(frame)); }
  void Close() override;
  size_t queued_bytes() const override { return stream_->queued_bytes(); }
  bool is_reliable() const override { return true; }
  Duration clock_offset() const override { return clock_.offset(); }
  void Share(std::shared_ptr<const SharedMemory> memory, ShareRefused on_refused) override {
    stream_->Share(std::move(memory), std::move(on_refused));
  }
  absl::string_view kind() const override { return stream_->kind(); }
  const std::string& peer() const override { return stream_->peer(); }

 private:
  // Called by the stream.
  std::span<std::byte> PayloadBuffer(const FrameHeader& header) override;
  bool TakesInPlace(const FrameHeader& header) override;
  void OnFrame(const ReceivedFrame& frame) override;
  void OnPayloadLost(const FrameHeader& header) override;
  void OnClosed(const absl::Status& why) override;

  void Ping();
  void StopPings();

  const std::shared_ptr<FrameStream> stream_;
  FrameHandler* handler_ = nullptr;
  PeerClock clock_;
  Executor::TimerId ping_timer_ = 0;
};

}  // namespace pushpull
