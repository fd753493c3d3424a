// SPDX-License-Identifier: Apache-2.0
//
// The connecting side's way to a channel: connect, say hello, hear that it is welcome.
//
//   Begin -> hello -> ack -> done(channel)
//     '---- deadline, no connection, refusal --> done(error)
#pragma once

#include <memory>
#include <string>

#include "runtime/base/event_loop.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/grpc/grpc_options.h"
#include "runtime/transport/grpc/grpc_stream.h"

namespace pushpull {

struct HelloAckMeta;

// Keeps itself alive until it has called `done`, once. Thread-confined to the loop.
class GrpcConnector final : public GrpcStreamOwner,
                            public std::enable_shared_from_this<GrpcConnector> {
 public:
  GrpcConnector(EventLoop& loop,
                const GrpcOptions& options,
                ConnectRequest request,
                ConnectDone done);

  void Begin(InFlight& in_flight);

  // The stream's calls.
  std::span<std::byte> PayloadBuffer(const FrameHeader&) override { return {}; }
  void OnFrame(const ReceivedFrame& frame) override;
  void OnPayloadLost(const FrameHeader&) override {}
  void OnClosed(const absl::Status& why) override;

 private:
  std::unique_ptr<Channel> MakeChannel(const ReceivedFrame& ack_frame, const HelloAckMeta& ack);
  // An error without the peer's name.
  void Fail(const absl::Status& why);
  void Finish(absl::StatusOr<std::unique_ptr<Channel>> result);

  EventLoop& loop_;
  const GrpcOptions options_;
  const ConnectRequest request_;
  const std::string peer_;
  ConnectDone done_;
  std::shared_ptr<GrpcStream> stream_;
  Executor::TimerId timer_ = 0;
};

}  // namespace pushpull
