// SPDX-License-Identifier: Apache-2.0
//
// One accepted connection on its way to be a channel.
//
//   Start -> hello -> Admit -> socket to its lane's loop -> ack -> OnChannel
//     '-- nonsense, end or timeout --> OnRejected
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/transport/acceptor_gate.h"
#include "runtime/transport/hello.h"
#include "runtime/transport/tcp/tcp_connection.h"
#include "runtime/transport/tcp/tcp_options.h"

namespace pushpull {

// What all connections of one listener share.
struct TcpReception {
  TcpReception(std::vector<EventLoop*> all_loops,
               const TcpOptions& tcp_options,
               ChannelAcceptor& acceptor)
      : loops(std::move(all_loops)), options(tcp_options), gate(acceptor) {}

  const std::vector<EventLoop*> loops;
  const TcpOptions options;
  AcceptorGate gate;
};

// Thread-confined to the first loop. Held by shared_ptr because its owner forgets it in `on_end`.
class TcpAcceptance final : public TcpConnectionOwner,
                            public std::enable_shared_from_this<TcpAcceptance> {
 public:
  // `on_end` is called once, when the connection has become a channel or nothing.
  TcpAcceptance(std::shared_ptr<TcpReception> reception,
                FileDescriptor socket,
                std::function<void()> on_end);

  void Start();
  // Ends it and reports why; `why` does not name the peer yet.
  void Reject(const absl::Status& why);
  // Ends it without a word to anybody.
  void Abandon();

  // The connection's calls.
  std::span<std::byte> PayloadBuffer(const FrameHeader&) override { return {}; }
  void OnFrame(const ReceivedFrame& frame) override;
  void OnPayloadLost(const FrameHeader&) override {}
  void OnClosed(const absl::Status& why) override { Report(why); }

 private:
  void Report(const absl::Status& why);
  absl::Status Judge(const Hello& hello);
  // What the hello offers; the ack says what came of it.
  void AttachSharedMemory(const HelloMeta& message, HelloAckMeta& ack);
  HelloAckMeta Answer(const ReceivedFrame& frame, const HelloMeta& message, absl::Status verdict);
  void HandOver(const HelloMeta& message, const HelloAckMeta& ack);

  const std::shared_ptr<TcpReception> reception_;
  const std::shared_ptr<TcpConnection> connection_;
  std::function<void()> on_end_;
  std::optional<ShmSegment> segment_;
  Executor::TimerId timer_ = 0;
};

}  // namespace pushpull
