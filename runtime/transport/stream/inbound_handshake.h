// SPDX-License-Identifier: Apache-2.0
//
// One accepted connection until it is a channel.
//
//   Start -> hello -> Admit -> move to the lane's loop -> ack -> OnChannel
//     '-- invalid hello, end or timeout --> OnRejected
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/transport/acceptor_gate.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/stream/frame_stream.h"
#include "runtime/transport/stream/transport_options.h"

namespace pushpull {

// What all connections of one listener share.
struct AcceptContext {
  AcceptContext(std::vector<EventLoop*> lanes,
                const TransportOptions& transport_options,
                ChannelAcceptor& acceptor)
      : loops(std::move(lanes)), options(transport_options), gate(acceptor) {}

  const std::vector<EventLoop*> loops;  // one a lane; handshakes run on the first
  const TransportOptions options;
  AcceptorGate gate;
};

// Thread-confined to the first loop. Held by shared_ptr because its owner forgets it in `on_end`.
class InboundHandshake final : private FrameStreamOwner,
                               public std::enable_shared_from_this<InboundHandshake> {
 public:
  // `on_end` is called once, when the connection has become a channel or was closed.
  InboundHandshake(std::shared_ptr<AcceptContext> context,
                   std::shared_ptr<FrameStream> stream,
                   std::function<void()> on_end);

  void Start();
  // Closes the connection and reports why; `why` does not name the peer yet.
  void Reject(const absl::Status& why);
  // Closes the connection without a report.
  void Abandon();

 private:
  // The stream's calls.
  void OnFrame(const ReceivedFrame& frame) override;
  void OnClosed(const absl::Status& why) override { Report(why); }

  void Report(const absl::Status& why);
  absl::Status Judge(const Hello& hello);
  HelloAckMeta Answer(const ReceivedFrame& frame, const HelloMeta& message, absl::Status verdict);
  void HandOver(const HelloMeta& message, const HelloAckMeta& ack);

  const std::shared_ptr<AcceptContext> context_;
  const std::shared_ptr<FrameStream> stream_;
  std::function<void()> on_end_;
  Executor::TimerId timer_ = 0;
};

}  // namespace pushpull
