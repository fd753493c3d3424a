// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/client_wire.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/channel_arguments.h>

#include "runtime/tls/grpc_credentials.h"
#include "runtime/transport/grpc/reactor_wire.h"

namespace pushpull {
namespace {

absl::Status FromGrpc(const grpc::Status& status) {
  // Only a server without our method answers this.
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::UnimplementedError(
        absl::StrCat("is a gRPC server, but not one of Pushpull: ", status.error_message()));
  }
  const bool is_end = status.ok() || status.error_code() == grpc::StatusCode::CANCELLED;
  return absl::UnavailableError(
      is_end ? "closed the connection"
             : absl::StrCat(status.error_message(), " (gRPC ", status.error_code(), ")"));
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address,
                                       const std::string& member,
                                       Duration timeout,
                                       const TransportOptions& options) {
  grpc::ChannelArguments arguments;
  SetStreamArguments(options, [&](const char* name, int value) { arguments.SetInt(name, value); });
  // Its own connection, without backoff from earlier failures.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Peers of a job are never behind an HTTP proxy that the environment names.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A stream is never retried, so gRPC need not buffer anything for that.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(milliseconds));
  const std::shared_ptr<const TlsIdentity> identity = CurrentIdentity(options.tls);
  // As in membership/control_client.cc.
  if (identity != nullptr) arguments.SetSslTargetNameOverride(kCertificateName);
  return grpc::CreateCustomChannel(address, MakeChannelCredentials(identity, member), arguments);
}

using ClientReactor = grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

class ClientWire final : public ReactorWire<ClientReactor>,
                         public std::enable_shared_from_this<ClientWire> {
 public:
  ClientWire(const std::string& address,
             const std::string& member,
             Duration timeout,
             const TransportOptions& options,
             InFlight& in_flight)
      : in_flight_(in_flight), connection_(std::make_unique<Connection>()) {
    connection_->stub =
        std::make_unique<grpc::GenericStub>(Connect(address, member, timeout, options));
  }

  void Start(std::shared_ptr<GrpcStream> stream) override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      receiver_ = std::move(stream);
      self_ = shared_from_this();
      connection_->stub->PrepareBidiStreamingCall(&connection_->context, kStreamMethod, {}, this);
      // Reads and writes start outside of reactions; the hold delays OnDone until End.
      AddHold();
      StartCall();
    }
    in_flight_.AddWire(shared_from_this());
  }

  // The connection ends here and not in OnDone: with the last connection gRPC joins the threads
  // that run OnDone. When it ends, gRPC releases the payloads it still had to send.
  void End() override ABSL_LOCKS_EXCLUDED(mu_) {
    std::unique_ptr<Connection> connection;
    MutexLock lock(mu_);
    receiver_.reset();
    if (connection_ == nullptr) return;
    if (!std::exchange(is_ending_, true)) {
      connection_->context.TryCancel();
      RemoveHold();
    }
    for (BriefWait wait; !is_done_;) wait.Continue(changed_, mu_);
    connection = std::move(connection_);  // destroyed after the lock is released
  }

  // Only the accepting side sends a last message.
  void EndWith(OutgoingMessage /*message*/) override { End(); }

  std::string peer() const override { return ""; }
  // The credentials have checked the peer's identity.
  absl::StatusOr<PeerIdentity> identity() const override { return PeerIdentity::Anybody(); }

  void OnReadDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    if (!ok) {
      MutexLock lock(mu_);
      if (!std::exchange(is_ending_, true)) RemoveHold();
      return;
    }
    TakeRead();
  }

  void OnDone(const grpc::Status& status) override ABSL_LOCKS_EXCLUDED(mu_) {
    if (const auto receiver = Receiver()) receiver->OnEnded(FromGrpc(status));
    std::shared_ptr<ClientWire> self;
    {
      MutexLock lock(mu_);
      self = std::move(self_);
      is_done_ = true;
      changed_.NotifyAll();
    }
    in_flight_.Remove();
  }

 private:
  struct Connection {
    std::unique_ptr<grpc::GenericStub> stub;
    grpc::ClientContext context;
  };

  InFlight& in_flight_;
  CondVar changed_;
  std::unique_ptr<Connection> connection_ ABSL_GUARDED_BY(mu_);  // until End
  std::shared_ptr<ClientWire> self_ ABSL_GUARDED_BY(mu_);        // from Start to OnDone
  bool is_done_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

std::shared_ptr<Wire> MakeClientWire(const std::string& address,
                                     const std::string& member,
                                     Duration timeout,
                                     const TransportOptions& options,
                                     InFlight& in_flight) {
  return std::make_shared<ClientWire>(address, member, timeout, options, in_flight);
}

}  // namespace pushpull
