// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/tcp/tcp_connector.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/transport/stream/socket.h"
#include "runtime/transport/tcp/tcp_connection.h"

namespace pushpull {

void TcpConnector::TryAddresses(absl::StatusOr<std::vector<SocketAddress>> addresses) {
  if (is_done()) return;  // the deadline passed during the look-up
  if (!addresses.ok()) return Fail(addresses.status());
  addresses_ = *std::move(addresses);
  std::reverse(addresses_.begin(), addresses_.end());
  TryNext(absl::UnavailableError("it has no address"));
}

void TcpConnector::TryNext(const absl::Status& why) {
  absl::Status last = why;
  while (!addresses_.empty()) {
    const SocketAddress address = addresses_.back();
    addresses_.pop_back();
    last = Try(address);
    if (last.ok()) return;
  }
  // Whatever the reason, trying again later may help.
  Fail(absl::UnavailableError(last.message()));
}

absl::Status TcpConnector::Try(const SocketAddress& address) {
  PUSHPULL_ASSIGN_OR_RETURN(socket_, BeginConnect(address, options()));
  return loop().Watch(socket_.get(),
                      EPOLLOUT,
                      [self = std::static_pointer_cast<TcpConnector>(shared_from_this())](
                          uint32_t) { self->OnConnected(); });
}

void TcpConnector::OnConnected() {
  loop().Unwatch(socket_.get());
  const absl::Status connected = ConnectResult(socket_.get());
  if (!connected.ok()) {
    socket_.Reset();
    return TryNext(connected);
  }
  TuneToPeer(socket_.get(), options().buffers);
  SendHello(std::make_shared<TcpConnection>(
      loop(),
      TcpStream(std::move(socket_), CurrentIdentity(options().tls), TlsSide::kConnecting),
      peer(),
      options()));
}

void TcpConnector::StopDialing() {
  if (socket_.is_open()) loop().Unwatch(socket_.get());
  socket_.Reset();
}

absl::Status TcpConnector::Explain(const absl::Status& why) const {
  // Certificates are replaced on one host after the other: a mismatch may be gone soon.
  if (absl::IsUnauthenticated(why)) return absl::UnavailableError(why.message());
  if (options().tls != nullptr || !absl::IsUnavailable(why)) return why;
  return absl::UnavailableError(absl::StrCat(
      why.message(), " before it answered a hello; if it has TLS, set PUSHPULL_TLS_DIR here"));
}

}  // namespace pushpull
