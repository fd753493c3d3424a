// SPDX-License-Identifier: Apache-2.0
//
// The connecting side's way to a channel: connect, say hello, hear that it is welcome.
//
//   Begin -> TryAddresses -> [each address until one answers] -> hello -> ack -> done(channel)
//     '--------------------------- deadline --------------------------------> done(error)
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/tcp/socket_address.h"
#include "runtime/transport/tcp/tcp_connection.h"
#include "runtime/transport/tcp/tcp_options.h"

namespace pushpull {

// Keeps itself alive until it has called `done`, once. Thread-confined to the loop.
class TcpConnector final : public TcpConnectionOwner,
                           public std::enable_shared_from_this<TcpConnector> {
 public:
  TcpConnector(EventLoop& loop,
               const TcpOptions& options,
               ConnectRequest request,
               ConnectDone done);

  // From here on the deadline ends it.
  void Begin();
  // The addresses that the look-up came to, or why there are none.
  void TryAddresses(absl::StatusOr<std::vector<SocketAddress>> addresses);

  // The connection's calls.
  std::span<std::byte> PayloadBuffer(const FrameHeader&) override { return {}; }
  void OnFrame(const ReceivedFrame& frame) override;
  void OnPayloadLost(const FrameHeader&) override {}
  void OnClosed(const absl::Status& why) override;

 private:
  // Goes on with the next address, or ends with `why` where there is none.
  void TryNext(const absl::Status& why);
  absl::Status Try(const SocketAddress& address);
  void OnConnected();
  // What is offered to a peer that may reach it.
  void MakeSharedMemory(int socket);
  absl::Status UseSharedMemory(const HelloAckMeta& ack);
  std::unique_ptr<Channel> MakeChannel(const ReceivedFrame& ack_frame, const HelloAckMeta& ack);
  // An error without the peer's name.
  void Fail(const absl::Status& why);
  void Finish(absl::StatusOr<std::unique_ptr<Channel>> result);

  EventLoop& loop_;
  const TcpOptions options_;
  const ConnectRequest request_;
  const std::string peer_;
  ConnectDone done_;
  std::vector<SocketAddress> addresses_;  // not tried yet, the next one last
  FileDescriptor socket_;                 // while a connect is under way
  std::optional<ShmSegment> segment_;     // while it is offered
  std::shared_ptr<TcpConnection> connection_;
  Executor::TimerId timer_ = 0;
};

}  // namespace pushpull
