// SPDX-License-Identifier: Apache-2.0
//
// A Channel over a stream whose handshake is done.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "runtime/transport/channel.h"
#include "runtime/transport/grpc/grpc_stream.h"
#include "runtime/transport/peer_clock.h"

namespace pushpull {

// Thread-confined to the stream's loop.
class GrpcChannel final : public Channel, public GrpcStreamOwner {
 public:
  GrpcChannel(std::shared_ptr<GrpcStream> stream, PeerClock clock);
  ~GrpcChannel() override;
  GrpcChannel(const GrpcChannel&) = delete;
  GrpcChannel& operator=(const GrpcChannel&) = delete;

  void Start(FrameHandler& handler) override;
  void Send(OutgoingFrame frame) override { stream_->Send(std::move(frame)); }
  // On the connecting side it waits for gRPC to let go of what it has, which is at once.
  void Close() override;
  size_t queued_bytes() const override { return stream_->queued_bytes(); }
  bool is_reliable() const override { return true; }
  Duration clock_offset() const override { return clock_.offset(); }
  void Share(std::shared_ptr<const SharedMemory>, ShareRefused) override {}
  absl::string_view kind() const override { return "grpc"; }
  const std::string& peer() const override { return stream_->peer(); }

  // The stream's calls.
  std::span<std::byte> PayloadBuffer(const FrameHeader& header) override;
  void OnFrame(const ReceivedFrame& frame) override;
  void OnPayloadLost(const FrameHeader& header) override;
  void OnClosed(const absl::Status& why) override;

 private:
  void Ask();
  void StopAsking();

  const std::shared_ptr<GrpcStream> stream_;
  FrameHandler* handler_ = nullptr;
  PeerClock clock_;
  Executor::TimerId timer_ = 0;
};

}  // namespace pushpull
