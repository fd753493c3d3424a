// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/tcp_transport.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/transport/tcp/socket.h"
#include "runtime/transport/tcp/socket_address.h"
#include "runtime/transport/tcp/tcp_connector.h"
#include "runtime/transport/tcp/tcp_listener.h"

namespace pushpull {

namespace {

TcpOptions WithTlsApplied(TcpOptions options) {
  if (options.tls != nullptr) options.payload_checksums = PayloadChecksums::kOff;
  return options;
}

}  // namespace

TcpTransport::TcpTransport(std::vector<EventLoop*> loops, TcpOptions options)
    : loops_(std::move(loops)), options_(WithTlsApplied(options)) {
  PUSHPULL_CHECK(!loops_.empty());
}

TcpTransport::~TcpTransport() {
  is_ending_ = true;
}

absl::StatusOr<std::unique_ptr<Listener>> TcpTransport::Listen(const std::string& address,
                                                               ChannelAcceptor& acceptor) {
  PUSHPULL_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(address));
  PUSHPULL_ASSIGN_OR_RETURN(FileDescriptor socket, ListenOn(host_port, options_));
  return std::unique_ptr<Listener>(
      std::make_unique<TcpListener>(loops_, options_, std::move(socket), acceptor));
}

void TcpTransport::Connect(ConnectRequest request, ConnectDone done) {
  EventLoop& loop = *loops_[request.local_lane];
  const absl::StatusOr<HostPort> address = ParseHostPort(request.address);
  if (!address.ok()) {
    loop.Post([done = std::move(done), status = address.status()] { done(status); });
    return;
  }
  const auto connector =
      std::make_shared<TcpConnector>(loop, options_, std::move(request), std::move(done));
  loop.Post([connector] { connector->Begin(); });
  if (IsNumeric(address->host)) return LookUpAndTry(*address, connector, loop);
  resolver().Post([this, address = *address, connector, &loop] {
    // What still waits when the transport ends is not looked up, so that it ends soon.
    if (!is_ending_) LookUpAndTry(address, connector, loop);
  });
}

void TcpTransport::LookUpAndTry(const HostPort& address,
                                const std::shared_ptr<TcpConnector>& connector,
                                EventLoop& loop) {
  loop.Post([connector, addresses = LookUp(address, LookUpFor::kConnecting)] {
    connector->TryAddresses(addresses);
  });
}

EventLoop& TcpTransport::resolver() {
  MutexLock lock(mu_);
  if (resolver_ == nullptr) resolver_ = std::make_unique<EventLoop>("pp-resolver");
  return *resolver_;
}

}  // namespace pushpull
