// SPDX-License-Identifier: Apache-2.0
//
// The grpc channel: the frames of the tcp channel in one bidirectional stream of gRPC for each pair
// of lanes, for networks that pass only HTTP/2 (docs/decisions/0033-grpc-channel.md). gRPC sends
// and receives on threads of its own; lanes copy received bytes to their final place.
#pragma once

#include <memory>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/transport/grpc/in_flight.h"
#include "runtime/transport/stream/stream_transport.h"

namespace pushpull {

class GrpcServer;

// Thread-safe.
class GrpcTransport final : public StreamTransport {
 public:
  // Lane i runs on loops[i]; the loops outlive the transport. Also makes malloc keep up to 64 MiB
  // of freed memory in each of its arenas.
  GrpcTransport(std::vector<EventLoop*> loops, const TransportOptions& options);
  // A Connect in progress is dropped. Waits until gRPC has released everything.
  ~GrpcTransport() override;
  GrpcTransport(const GrpcTransport&) = delete;
  GrpcTransport& operator=(const GrpcTransport&) = delete;

  absl::string_view scheme() const override { return "grpc://"; }

 private:
  absl::StatusOr<std::shared_ptr<StreamAcceptor>> MakeAcceptor(
      std::shared_ptr<AcceptContext> context, FileDescriptor socket) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void Dial(const HostPort& address,
            EventLoop& loop,
            const TransportOptions& options,
            ConnectRequest request,
            ConnectDone done) override;

  // Connections in progress may hold it after the transport is gone.
  const std::shared_ptr<InFlight> in_flight_ = std::make_shared<InFlight>();
  Mutex mu_;
  // Accepted channels live in their server, so it outlives its listener.
  std::vector<std::shared_ptr<GrpcServer>> servers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
