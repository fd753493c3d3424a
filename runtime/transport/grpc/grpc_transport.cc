// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/grpc_transport.h"

#include <malloc.h>

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/host_port.h"
#include "runtime/base/status_macros.h"
#include "runtime/transport/grpc/grpc_connector.h"
#include "runtime/transport/grpc/grpc_listener.h"
#include "runtime/transport/grpc/server_wire.h"
#include "runtime/transport/tcp/socket.h"

namespace pushpull {

namespace {

GrpcOptions WithTlsApplied(GrpcOptions options) {
  if (options.tls != nullptr) options.payload_checksums = PayloadChecksums::kOff;
  return options;
}

// gRPC allocates and frees what it receives, on different threads. glibc would give such memory
// back to the kernel at once and have it cleared again, which is a third of the CPU time of a step.
void KeepFreedMemory() {
  constexpr int kMebibyte = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, 32 * kMebibyte);  // as far as glibc goes by itself, over time
  mallopt(M_TRIM_THRESHOLD, 64 * kMebibyte);
  mallopt(M_TOP_PAD, 4 * kMebibyte);
}

}  // namespace

GrpcTransport::GrpcTransport(std::vector<EventLoop*> loops, GrpcOptions options)
    : loops_(std::move(loops)), options_(WithTlsApplied(options)) {
  PUSHPULL_CHECK(!loops_.empty());
  KeepFreedMemory();
}

GrpcTransport::~GrpcTransport() {
  in_flight_->EndWires();
  std::vector<std::shared_ptr<GrpcServer>> servers;
  {
    MutexLock lock(mu_);
    servers.swap(servers_);
  }
  for (const std::shared_ptr<GrpcServer>& server : servers) server->Shutdown();
  in_flight_->AwaitNone();
}

absl::StatusOr<std::unique_ptr<Listener>> GrpcTransport::Listen(const std::string& address,
                                                                ChannelAcceptor& acceptor) {
  PUSHPULL_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  PUSHPULL_ASSIGN_OR_RETURN(FileDescriptor socket,
                            ListenOn(host_port,
                                     TcpOptions{.user_timeout = options_.silence_timeout,
                                                .buffers = {.unsent_bytes_max = 0}}));
  PUSHPULL_ASSIGN_OR_RETURN(
      std::unique_ptr<GrpcListener> listener,
      GrpcListener::Start(loops_, options_, std::move(socket), *in_flight_, acceptor));
  MutexLock lock(mu_);
  servers_.push_back(listener->serving());
  return listener;
}

void GrpcTransport::Connect(ConnectRequest request, ConnectDone done) {
  EventLoop& loop = *loops_[request.local_lane];
  const absl::StatusOr<HostPort> address = ParseHostPort(request.address);
  if (!address.ok()) {
    loop.Post([done = std::move(done), status = address.status()] { done(status); });
    return;
  }
  const auto connector =
      std::make_shared<GrpcConnector>(loop, options_, std::move(request), std::move(done));
  loop.Post([connector, in_flight = in_flight_] { connector->Begin(*in_flight); });
}

}  // namespace pushpull
