// SPDX-License-Identifier: Apache-2.0
//
// A Channel over a connection whose handshake is done.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "runtime/transport/channel.h"
#include "runtime/transport/clock_estimate.h"
#include "runtime/transport/tcp/tcp_connection.h"

namespace pushpull {

// How this end learns of the peer's clock.
enum class ClockRole {
  kShared,    // both ends read the same one
  kMeasures,  // asks the peer every second: the connecting side
  kIsTold,    // by the peer's questions: the accepting side
};

// Thread-confined to the connection's loop.
class TcpChannel final : public Channel, public TcpConnectionOwner {
 public:
  // `clock`: what is known from the handshake.
  TcpChannel(std::shared_ptr<TcpConnection> connection, ClockRole role, ClockEstimate clock);
  ~TcpChannel() override;
  TcpChannel(const TcpChannel&) = delete;
  TcpChannel& operator=(const TcpChannel&) = delete;

  void Start(FrameHandler& handler) override;
  void Send(OutgoingFrame frame) override { connection_->Send(std::move(frame)); }
  void Close() override;
  size_t queued_bytes() const override { return connection_->queue().num_bytes(); }
  bool is_reliable() const override { return true; }
  Duration clock_offset() const override { return clock_offset_; }
  void Share(std::shared_ptr<const SharedMemory> memory, ShareRefused on_refused) override;
  absl::string_view kind() const override {
    return connection_->has_shared_memory() ? "shm" : "tcp";
  }
  const std::string& peer() const override { return connection_->peer(); }

  // The connection's calls.
  std::span<std::byte> PayloadBuffer(const FrameHeader& header) override;
  bool TakesInPlace(const FrameHeader& header) override;
  void OnFrame(const ReceivedFrame& frame) override;
  void OnPayloadLost(const FrameHeader& header) override;
  void OnClosed(const absl::Status& why) override;

 private:
  void Ping();
  void AnswerPing(const ReceivedFrame& ping);
  void TakePong(const ReceivedFrame& pong);
  void TakeCredit(const ReceivedFrame& credit);
  void AnswerRegion(const ReceivedFrame& message);
  void StopPings();

  const std::shared_ptr<TcpConnection> connection_;
  const ClockRole role_;
  FrameHandler* handler_ = nullptr;
  ClockEstimate clock_;
  Duration clock_offset_;
  Executor::TimerId ping_timer_ = 0;
  bool is_ping_under_way_ = false;
};

}  // namespace pushpull
