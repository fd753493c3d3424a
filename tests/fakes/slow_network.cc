// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/slow_network.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "runtime/base/host_port.h"
#include "runtime/base/status_macros.h"
#include "runtime/transport/stream/socket_address.h"

namespace pushpull {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;

absl::StatusOr<FileDescriptor> ConnectTo(const HostPort& address) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::vector<SocketAddress> found,
                            LookUp(address, LookUpFor::kConnecting));
  FileDescriptor socket(::socket(found.front().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(socket.get(), found.front().get(), found.front().length) != 0)
    return StatusFromErrno(errno, "connect " + ToString(address));
  return socket;
}

void SendAtOnce(const FileDescriptor& socket) {
  const int yes = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

// Waits where the receiver's buffer is full: the members here always read.
bool SendAll(int to, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = send(to, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SlowNetwork>> SlowNetwork::Listen(std::string server_host) {
  PUSHPULL_ASSIGN_OR_RETURN(FileDescriptor listener, BindTo({.host = "127.0.0.1"}));
  if (listen(listener.get(), SOMAXCONN) != 0) return StatusFromErrno(errno, "listen");
  PUSHPULL_ASSIGN_OR_RETURN(const uint16_t port, BoundPort(listener));
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): the constructor is private
  std::unique_ptr<SlowNetwork> network(
      new SlowNetwork(std::move(server_host), std::move(listener), port));
  return network;
}

SlowNetwork::SlowNetwork(std::string server_host, FileDescriptor listener, uint16_t port)
    : server_host_(std::move(server_host)), listener_(std::move(listener)), port_(port) {
  loop_.Post(
      [this] { (void)loop_.Watch(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); }); });
}

SlowNetwork::~SlowNetwork() {
  loop_.Stop();
}

void SlowNetwork::Accept() {
  const auto connection = std::make_shared<Connection>();
  connection->client = FileDescriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection->client.is_open()) return;
  absl::StatusOr<FileDescriptor> server = ConnectTo({.host = server_host_, .port = port_});
  if (!server.ok()) return;
  connection->server = *std::move(server);
  const int client = connection->client.get();
  const int server_fd = connection->server.get();
  connection->up = {.from = client, .to = server_fd, .delay = &to_server_};
  connection->down = {.from = server_fd, .to = client, .delay = &from_server_};
  SendAtOnce(connection->client);
  SendAtOnce(connection->server);
  for (Way* way : {&connection->up, &connection->down}) {
    (void)loop_.Watch(
        way->from, EPOLLIN, [this, connection, way](uint32_t) { Read(connection, *way); });
  }
}

void SlowNetwork::Read(const std::shared_ptr<Connection>& connection, Way& way) {
  std::string bytes(kReadBytes, '\0');
  const ssize_t count = recv(way.from, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return Close(*connection);
  bytes.resize(static_cast<size_t>(count));
  const SteadyTime due = loop_.Now() + way.delay->load();
  way.held.emplace_back(due, std::move(bytes));
  loop_.RunAt(due, [this, connection, &way] { PassOn(connection, way); });
}

void SlowNetwork::PassOn(const std::shared_ptr<Connection>& connection, Way& way) {
  while (connection->client.is_open() && !way.held.empty() &&
         way.held.front().first <= loop_.Now()) {
    if (!SendAll(way.to, way.held.front().second)) return Close(*connection);
    way.held.pop_front();
  }
}

void SlowNetwork::Close(Connection& connection) {
  if (!connection.client.is_open()) return;
  loop_.Unwatch(connection.client.get());
  loop_.Unwatch(connection.server.get());
  connection.client.Reset();
  connection.server.Reset();
}

}  // namespace pushpull
