// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/tcp_transport.h"

#include <utility>

#include "runtime/transport/stream/socket_address.h"
#include "runtime/transport/tcp/tcp_connection.h"
#include "runtime/transport/tcp/tcp_connector.h"

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
    // Look-ups still queued when the transport ends are skipped, so that it ends soon.
    if (!is_ending_) LookUpAndTry(address, connector, loop);
  });
}

EventLoop& TcpTransport::resolver() {
  MutexLock lock(mu_);
  if (resolver_ == nullptr) resolver_ = std::make_unique<EventLoop>("pp-resolver");
  return *resolver_;
}

}  // namespace pushpull
