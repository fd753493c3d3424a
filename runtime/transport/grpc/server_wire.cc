// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/server_wire.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "runtime/tls/grpc_credentials.h"
#include "runtime/transport/grpc/reactor_wire.h"

namespace pushpull {
namespace {

// "ipv6:%5B::1%5D:7171" as "[::1]:7171".
std::string AddressOf(const grpc::CallbackServerContext& context) {
  const std::string peer = context.peer();
  absl::string_view address = peer;
  if (!absl::ConsumePrefix(&address, "ipv4:")) absl::ConsumePrefix(&address, "ipv6:");
  return absl::StrReplaceAll(address, {{"%5B", "["}, {"%5D", "]"}});
}

class ServerWire final : public ReactorWire<grpc::ServerGenericBidiReactor>,
                         public std::enable_shared_from_this<ServerWire> {
 public:
  ServerWire(grpc::GenericCallbackServerContext& context, const TlsFolder* tls, InFlight& in_flight)
      : in_flight_(in_flight),
        context_(context),
        peer_(AddressOf(context)),
        identity_(PeerOf(*context.auth_context(), tls)) {}

  // Keeps it alive until OnDone.
  void Hold() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      self_ = shared_from_this();
    }
    in_flight_.AddWire(shared_from_this());
  }

  void Start(std::shared_ptr<GrpcStream> stream) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (!is_ending_) receiver_ = std::move(stream);
  }

  void End() override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    receiver_.reset();
    if (std::exchange(is_ending_, true)) return;
    context_.TryCancel();
    Finish(grpc::Status::CANCELLED);
  }

  void EndWith(OutgoingMessage message) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    receiver_.reset();
    if (std::exchange(is_ending_, true)) return;
    outgoing_ = ToByteBuffer(std::move(message));
    StartWriteAndFinish(&outgoing_, grpc::WriteOptions(), grpc::Status::OK);
  }

  std::string peer() const override { return peer_; }
  absl::StatusOr<PeerIdentity> identity() const override { return identity_; }

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    if (!ok) return ReportEnd();
    TakeRead();
  }

  // A stream that has not started yet learns of the cancellation from its first read.
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mu_) { ReportEnd(); }

  void OnDone() override ABSL_LOCKS_EXCLUDED(mu_) {
    std::shared_ptr<ServerWire> self;
    {
      MutexLock lock(mu_);
      self = std::move(self_);
    }
    in_flight_.Remove();
  }

 private:
  void ReportEnd() ABSL_LOCKS_EXCLUDED(mu_) {
    if (const auto receiver = Receiver())
      receiver->OnEnded(absl::UnavailableError("closed the connection"));
  }

  InFlight& in_flight_;
  grpc::GenericCallbackServerContext& context_;  // until OnDone
  const std::string peer_;
  const absl::StatusOr<PeerIdentity> identity_;
  std::shared_ptr<ServerWire> self_ ABSL_GUARDED_BY(mu_);  // from Hold to OnDone
};

// Deletes itself.
class UnknownMethod final : public grpc::ServerGenericBidiReactor {
 public:
  explicit UnknownMethod(const std::string& method) {
    Finish({grpc::StatusCode::UNIMPLEMENTED, "no method " + method});
  }
  void OnDone() override { delete this; }
};

class Service final : public grpc::CallbackGenericService {
 public:
  Service(const TlsFolder* tls, InFlight& in_flight, GrpcServer::StreamTaker take)
      : tls_(tls), in_flight_(in_flight), take_(std::move(take)) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (context->method() != kStreamMethod) return new UnknownMethod(context->method());
    const auto wire = std::make_shared<ServerWire>(*context, tls_, in_flight_);
    wire->Hold();
    take_(wire);
    return wire.get();
  }

 private:
  const TlsFolder* const tls_;
  InFlight& in_flight_;
  const GrpcServer::StreamTaker take_;
};

class RunningServer final : public GrpcServer {
 public:
  RunningServer(const TransportOptions& options, InFlight& in_flight, StreamTaker take)
      : service_(options.tls, in_flight, std::move(take)),
        credentials_(MakeServerCredentials(options.tls)) {
    grpc::ServerBuilder builder;
    SetStreamArguments(
        options, [&](const char* name, int value) { builder.AddChannelArgument(name, value); });
    const auto timeout =
        std::chrono::duration_cast<std::chrono::milliseconds>(options.handshake_timeout).count();
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, static_cast<int>(timeout));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, static_cast<int>(timeout));
    // Each channel has its own connection.
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1);
    // As for the coordinator's port (membership/session_service.cc).
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    builder.RegisterCallbackGenericService(&service_);
    connections_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials_);
    server_ = builder.BuildAndStart();
  }
  ~RunningServer() override { RunningServer::Shutdown(); }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;

  bool is_running() const { return server_ != nullptr; }

  void Serve(FileDescriptor connection) override {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.fd = connection.Release();
    connections_->HandleNewConnection(&parameters);
  }

  void Shutdown() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

 private:
  Service service_;
  const std::shared_ptr<grpc::ServerCredentials> credentials_;  // outlives the server
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const TransportOptions& options,
                                                              InFlight& in_flight,
                                                              StreamTaker take) {
  auto server = std::make_unique<RunningServer>(options, in_flight, std::move(take));
  if (!server->is_running())
    return absl::InternalError("gRPC's server did not start; its log says why");
  return server;
}

}  // namespace pushpull
