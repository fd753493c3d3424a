// SPDX-License-Identifier: Apache-2.0
//
// One accepted stream on its way to be a channel.
//
//   Start -> hello -> Admit -> stream to its lane's loop -> ack -> OnChannel
//     '-- nonsense, end or timeout --> OnRejected
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/transport/acceptor_gate.h"
#include "runtime/transport/grpc/grpc_options.h"
#include "runtime/transport/grpc/grpc_stream.h"
#include "runtime/transport/hello.h"

namespace pushpull {

// What all streams of one listener share.
struct GrpcReception {
  GrpcReception(std::vector<EventLoop*> all_loops,
                const GrpcOptions& grpc_options,
                InFlight& all_in_flight,
                ChannelAcceptor& acceptor)
      : loops(std::move(all_loops)),
        options(grpc_options),
        in_flight(all_in_flight),
        gate(acceptor) {}

  const std::vector<EventLoop*> loops;
  const GrpcOptions options;
  InFlight& in_flight;
  AcceptorGate gate;
};

// Thread-confined to the first loop. Held by shared_ptr because its owner forgets it in `on_end`.
class GrpcAcceptance final : public GrpcStreamOwner,
                             public std::enable_shared_from_this<GrpcAcceptance> {
 public:
  // `on_end` is called once, when the stream has become a channel or nothing.
  GrpcAcceptance(std::shared_ptr<GrpcReception> reception,
                 const std::shared_ptr<Wire>& wire,
                 std::function<void()> on_end);

  void Start();
  // Ends it and reports why; `why` does not name the peer yet.
  void Reject(const absl::Status& why);
  // Ends it without a word to anybody.
  void Abandon();

  // The stream's calls.
  std::span<std::byte> PayloadBuffer(const FrameHeader&) override { return {}; }
  void OnFrame(const ReceivedFrame& frame) override;
  void OnPayloadLost(const FrameHeader&) override {}
  void OnClosed(const absl::Status& why) override { Report(why); }

 private:
  void Report(const absl::Status& why);
  absl::Status Judge(const Hello& hello);
  HelloAckMeta Answer(const ReceivedFrame& frame, const HelloMeta& message, absl::Status verdict);
  void HandOver(const HelloMeta& message, const HelloAckMeta& ack);

  const std::shared_ptr<GrpcReception> reception_;
  const std::shared_ptr<Wire> wire_;
  const std::shared_ptr<GrpcStream> stream_;
  std::function<void()> on_end_;
  Executor::TimerId timer_ = 0;
};

}  // namespace pushpull
