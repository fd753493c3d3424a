// SPDX-License-Identifier: Apache-2.0
//
// The tcp channel: own frames over sockets, one loop a lane (decisions/0002-frame-layout.md and
// 0003-lanes.md).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/base/host_port.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/tcp/tcp_options.h"

namespace pushpull {

class TcpConnector;

// Thread-safe. Has one thread of its own, "pp-resolver", from the first Connect to a host that is a
// name: looking a name up blocks.
class TcpTransport final : public Transport {
 public:
  // Lane i runs on loops[i]; the loops outlive the transport.
  TcpTransport(std::vector<EventLoop*> loops, TcpOptions options);
  // Waits for a look-up under way, which is as long as the system's resolver is configured to take.
  // A Connect under way goes on; one that has no address yet ends with its deadline.
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  size_t lane_count() const override { return loops_.size(); }
  Executor& lane(size_t index) override { return *loops_[index]; }
  // Blocks for the look-up where the host is a name.
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   ChannelAcceptor& acceptor) override;
  void Connect(ConnectRequest request, ConnectDone done) override;

 private:
  void LookUpAndTry(const HostPort& address,
                    const std::shared_ptr<TcpConnector>& connector,
                    EventLoop& loop);
  EventLoop& resolver() ABSL_LOCKS_EXCLUDED(mu_);

  const std::vector<EventLoop*> loops_;
  const TcpOptions options_;

  std::atomic<bool> is_ending_ = false;
  Mutex mu_;
  std::unique_ptr<EventLoop> resolver_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
