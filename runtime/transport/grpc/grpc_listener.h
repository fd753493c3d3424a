// SPDX-License-Identifier: Apache-2.0
//
// The accepting side: accepts sockets on the first loop and hands them to gRPC, whose streams come
// back there to say hello.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/event_loop.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/grpc/grpc_options.h"
#include "runtime/transport/grpc/server_wire.h"

namespace pushpull {

// Thread-safe. The destructor waits until nothing is being handed to the acceptor; it is not called
// by the acceptor.
class GrpcListener final : public Listener {
 public:
  // Channels that were accepted live in it, so it outlives the listener.
  using Serving = std::shared_ptr<GrpcServer>;

  // `socket` listens. The loops, `in_flight` and `acceptor` outlive the listener.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Start(std::vector<EventLoop*> loops,
                                                             const GrpcOptions& options,
                                                             FileDescriptor socket,
                                                             InFlight& in_flight,
                                                             ChannelAcceptor& acceptor);
  ~GrpcListener() override;
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  const std::string& address() const override { return address_; }
  Serving serving() const;

 private:
  class State;
  GrpcListener(std::string address, std::shared_ptr<State> state);

  const std::string address_;
  const std::shared_ptr<State> state_;
};

}  // namespace pushpull
