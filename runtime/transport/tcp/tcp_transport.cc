// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/tcp_transport.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/transport/stream/socket.h"
#include "runtime/transport/stream/socket_address.h"
#include "runtime/transport/stream/stream_connector.h"
#include "runtime/transport/tcp/tcp_connection.h"

namespace pushpull {
namespace {

class TcpAcceptor final : public StreamAcceptor {
 public:
  using StreamAcceptor::StreamAcceptor;

 private:
  void TakeSocket(FileDescriptor socket) override {
    const TransportOptions& options = context().options;
    std::string peer = PeerAddress(socket.get());
    TcpStream stream(std::move(socket), CurrentIdentity(options.tls), TlsSide::kAccepting);
    Receive(std::make_shared<TcpConnection>(loop(), std::move(stream), std::move(peer), options));
  }
};

// Dials a peer, trying its addresses one after the other until one answers. Thread-confined to the
// loop.
class TcpConnector final : public StreamConnector {
 public:
  using StreamConnector::StreamConnector;

  // Takes the lookup's addresses, or why it found none. Called after Begin.
  void TryAddresses(absl::StatusOr<std::vector<SocketAddress>> addresses) {
    if (is_done()) return;  // the deadline passed during the lookup
    if (!addresses.ok()) return Fail(addresses.status());
    addresses_ = *std::move(addresses);
    std::reverse(addresses_.begin(), addresses_.end());
    TryNext(absl::UnavailableError("it has no address"));
  }

 private:
  absl::Status Explain(const absl::Status& why) const override {
    // Certificates are replaced host by host: a mismatch may be gone soon.
    if (absl::IsUnauthenticated(why)) return absl::UnavailableError(why.message());
    if (options().tls != nullptr || !absl::IsUnavailable(why)) return why;
    return absl::UnavailableError(absl::StrCat(
        why.message(), " before it answered a hello; if it has TLS, set PUSHPULL_TLS_DIR here"));
  }

  void StopDialing() override {
    if (socket_.is_open()) loop().Unwatch(socket_.get());
    socket_.Reset();
  }

  // Continues with the next address, or fails with `why` if there is none.
  void TryNext(absl::Status why) {
    while (!addresses_.empty()) {
      const SocketAddress address = addresses_.back();
      addresses_.pop_back();
      why = Try(address);
      if (why.ok()) return;
    }
    // Whatever the reason, trying again later may help.
    Fail(absl::UnavailableError(why.message()));
  }

  absl::Status Try(const SocketAddress& address) {
    PUSHPULL_ASSIGN_OR_RETURN(socket_, BeginConnect(address, options()));
    const auto self = std::static_pointer_cast<TcpConnector>(shared_from_this());
    return loop().Watch(socket_.get(), EPOLLOUT, [self](uint32_t) { self->OnConnected(); });
  }

  void OnConnected() {
    loop().Unwatch(socket_.get());
    const absl::Status connected = ConnectResult(socket_.get());
    if (!connected.ok()) {
      socket_.Reset();
      return TryNext(connected);
    }
    TuneToPeer(socket_.get(), options().buffers);
    TcpStream stream(std::move(socket_), CurrentIdentity(options().tls), TlsSide::kConnecting);
    SendHello(std::make_shared<TcpConnection>(loop(), std::move(stream), peer(), options()));
  }

  std::vector<SocketAddress> addresses_;  // not tried yet, the next one last
  FileDescriptor socket_;                 // while a connect is in progress
};

void LookUpAndTry(const HostPort& address,
                  const std::shared_ptr<TcpConnector>& connector,
                  EventLoop& loop) {
  loop.Post([connector, addresses = LookUp(address, LookUpFor::kConnecting)] {
    connector->TryAddresses(addresses);
  });
}

}  // namespace

absl::StatusOr<std::shared_ptr<StreamAcceptor>> TcpTransport::MakeAcceptor(
    std::shared_ptr<AcceptContext> context, FileDescriptor socket) {
  return std::make_shared<TcpAcceptor>(std::move(context), std::move(socket));
}

void TcpTransport::Dial(const HostPort& address,
                        EventLoop& loop,
                        const TransportOptions& options,
                        ConnectRequest request,
                        ConnectDone done) {
  const auto connector =
      std::make_shared<TcpConnector>(loop, options, std::move(request), std::move(done));
  loop.Post([connector] { connector->Begin(); });
  if (IsNumeric(address.host)) return LookUpAndTry(address, connector, loop);
  resolver().Post([this, address, connector, &loop] {
    // Lookups still queued when the transport ends are skipped, so that it ends soon.
    if (!is_ending_) LookUpAndTry(address, connector, loop);
  });
}

EventLoop& TcpTransport::resolver() {
  MutexLock lock(mu_);
  if (resolver_ == nullptr) resolver_ = std::make_unique<EventLoop>("pp-resolver");
  return *resolver_;
}

}  // namespace pushpull
