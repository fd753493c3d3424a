// SPDX-License-Identifier: Apache-2.0
//
// What the tcp and grpc transports have in common: one loop per lane, and their own listening
// sockets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/base/host_port.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/stream/stream_listener.h"
#include "runtime/transport/stream/transport_options.h"

namespace pushpull {

// Thread-safe.
class StreamTransport : public Transport {
 public:
  size_t lane_count() const final { return loops_.size(); }
  Executor& lane(size_t index) final { return *loops_[index]; }
  // Blocks for the lookup if the host is a name.
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   ChannelAcceptor& acceptor) final;
  void Connect(ConnectRequest request, ConnectDone done) final;

 protected:
  // Lane i runs on loops[i]; the loops outlive the transport.
  StreamTransport(std::vector<EventLoop*> loops, TransportOptions options);

 private:
  virtual absl::StatusOr<std::shared_ptr<StreamAcceptor>> MakeAcceptor(
      std::shared_ptr<AcceptContext> context, FileDescriptor socket) = 0;
  // Begins a StreamConnector on `loop`, which is that of request.local_lane.
  virtual void Dial(const HostPort& address,
                    EventLoop& loop,
                    const TransportOptions& options,
                    ConnectRequest request,
                    ConnectDone done) = 0;

  const std::vector<EventLoop*> loops_;
  const TransportOptions options_;
};

}  // namespace pushpull
