// SPDX-License-Identifier: Apache-2.0
//
// The grpc channel: the frames of the tcp channel in one bidirectional stream of gRPC for each pair
// of lanes, for networks that let nothing but HTTP/2 through (decisions/0033-grpc-channel.md). gRPC
// sends and receives on threads of its own; lanes copy what came into its final place.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/event_loop.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/grpc/grpc_options.h"
#include "runtime/transport/grpc/in_flight.h"

namespace pushpull {

class GrpcServer;

// Thread-safe.
class GrpcTransport final : public Transport {
 public:
  // Lane i runs on loops[i]; the loops outlive the transport. From then on malloc keeps up to 64
  // MiB of freed memory for each of its arenas.
  GrpcTransport(std::vector<EventLoop*> loops, GrpcOptions options);
  // A Connect under way is dropped. Waits until gRPC has let go of everything.
  ~GrpcTransport() override;
  GrpcTransport(const GrpcTransport&) = delete;
  GrpcTransport& operator=(const GrpcTransport&) = delete;

  size_t lane_count() const override { return loops_.size(); }
  Executor& lane(size_t index) override { return *loops_[index]; }
  absl::string_view scheme() const override { return "grpc://"; }
  // Blocks for the look-up where the host is a name.
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   ChannelAcceptor& acceptor) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void Connect(ConnectRequest request, ConnectDone done) override;

 private:
  const std::vector<EventLoop*> loops_;
  const GrpcOptions options_;
  // Connections under way hold it beyond the transport's end.
  const std::shared_ptr<InFlight> in_flight_ = std::make_shared<InFlight>();
  Mutex mu_;
  std::vector<std::shared_ptr<GrpcServer>> servers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
