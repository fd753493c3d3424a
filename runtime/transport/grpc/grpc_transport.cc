// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/grpc_transport.h"

#include <malloc.h>

#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/tls/grpc_credentials.h"
#include "runtime/transport/grpc/client_wire.h"
#include "runtime/transport/grpc/grpc_stream.h"
#include "runtime/transport/grpc/server_wire.h"
#include "runtime/transport/stream/stream_connector.h"

namespace pushpull {
namespace {

// gRPC allocates and frees what it receives on different threads. glibc would return such memory to
// the kernel at once and have it cleared again, which takes a third of a step's CPU time.
void KeepFreedMemory() {
  constexpr int kMebibyte = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, 32 * kMebibyte);  // the most that glibc would reach by itself
  mallopt(M_TRIM_THRESHOLD, 64 * kMebibyte);
  mallopt(M_TOP_PAD, 4 * kMebibyte);
}

// gRPC has its own windows, so the kernel's bound on unsent bytes would only slow it down.
TransportOptions WithoutUnsentBound(TransportOptions options) {
  options.buffers = {.unsent_bytes_max = 0};
  return options;
}

// Hands sockets to gRPC, whose streams come back on one of its threads.
class GrpcAcceptor final : public StreamAcceptor {
 public:
  GrpcAcceptor(std::shared_ptr<AcceptContext> context, FileDescriptor socket, InFlight& in_flight)
      : StreamAcceptor(std::move(context), std::move(socket)), in_flight_(in_flight) {}

  absl::StatusOr<std::shared_ptr<GrpcServer>> StartServer() {
    PUSHPULL_ASSIGN_OR_RETURN(
        server_,
        GrpcServer::Start(
            context().options,
            in_flight_,
            // Not a shared_ptr: this object holds the server, which holds the closure.
            [weak = weak_from_this(), &loop = loop()](const std::shared_ptr<Wire>& wire) {
              loop.Post([weak, wire] {
                const auto self = std::static_pointer_cast<GrpcAcceptor>(weak.lock());
                if (self == nullptr || self->is_ended()) return wire->End();
                self->TakeWire(wire);
              });
            }));
    return server_;
  }

 private:
  void TakeSocket(FileDescriptor socket) override { server_->Serve(std::move(socket)); }

  void TakeWire(const std::shared_ptr<Wire>& wire) {
    Receive(GrpcStream::Open(loop(),
                             wire,
                             {.side = StreamSide::kAccepting,
                              .peer = wire->peer(),
                              .frames_max = context().options.send_queue_frames_max},
                             in_flight_));
  }

  InFlight& in_flight_;
  std::shared_ptr<GrpcServer> server_;
};

// gRPC looks up the host and connects by itself. Thread-confined to the loop.
class GrpcConnector final : public StreamConnector {
 public:
  using StreamConnector::StreamConnector;

  // Called after Begin.
  void Dial(InFlight& in_flight) {
    const auto wire = MakeClientWire(request().address,
                                     request().server ? ToString(*request().server) : "",
                                     request().deadline.remaining(),
                                     options(),
                                     in_flight);
    SendHello(GrpcStream::Open(loop(),
                               wire,
                               {.side = StreamSide::kConnecting,
                                .peer = peer(),
                                .frames_max = options().send_queue_frames_max},
                               in_flight));
  }

 private:
  absl::Status Explain(const absl::Status& why) const override {
    return ExplainNoAnswer(why, options().tls != nullptr);
  }
};

}  // namespace

GrpcTransport::GrpcTransport(std::vector<EventLoop*> loops, const TransportOptions& options)
    : StreamTransport(std::move(loops), WithoutUnsentBound(options)) {
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

absl::StatusOr<std::shared_ptr<StreamAcceptor>> GrpcTransport::MakeAcceptor(
    std::shared_ptr<AcceptContext> context, FileDescriptor socket) {
  const auto acceptor =
      std::make_shared<GrpcAcceptor>(std::move(context), std::move(socket), *in_flight_);
  PUSHPULL_ASSIGN_OR_RETURN(std::shared_ptr<GrpcServer> server, acceptor->StartServer());
  MutexLock lock(mu_);
  servers_.push_back(std::move(server));
  return acceptor;
}

void GrpcTransport::Dial(const HostPort&,
                         EventLoop& loop,
                         const TransportOptions& options,
                         ConnectRequest request,
                         ConnectDone done) {
  const auto connector =
      std::make_shared<GrpcConnector>(loop, options, std::move(request), std::move(done));
  loop.Post([connector, in_flight = in_flight_] {
    connector->Begin();
    connector->Dial(*in_flight);
  });
}

}  // namespace pushpull
