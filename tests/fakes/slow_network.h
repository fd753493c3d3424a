// SPDX-License-Identifier: Apache-2.0
//
// A network between real sockets that holds back what it passes on: listens in front of a server,
// and hands on the bytes of each connection, in order, as long after their arrival as it is told.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "runtime/base/event_loop.h"
#include "runtime/base/file_descriptor.h"

namespace pushpull {

// Thread-safe. Has a thread of its own.
class SlowNetwork {
 public:
  // Listens on a free port of 127.0.0.1, for a server that listens on that port of `server_host`.
  static absl::StatusOr<std::unique_ptr<SlowNetwork>> Listen(std::string server_host);
  ~SlowNetwork();
  SlowNetwork(const SlowNetwork&) = delete;
  SlowNetwork& operator=(const SlowNetwork&) = delete;

  uint16_t port() const { return port_; }
  // Of what arrives from now on: to the server, and from it.
  void SetDelays(Duration to_server, Duration from_server) {
    to_server_.store(to_server);
    from_server_.store(from_server);
  }

 private:
  // One direction of a connection, whose handlers and timers keep it.
  struct Way {
    int from = -1;
    int to = -1;
    const std::atomic<Duration>* delay = nullptr;
    std::deque<std::pair<SteadyTime, std::string>> held;  // with when it is due
  };
  struct Connection {
    FileDescriptor client;
    FileDescriptor server;
    Way up;
    Way down;
  };

  SlowNetwork(std::string server_host, FileDescriptor listener, uint16_t port);
  void Accept();
  void Read(const std::shared_ptr<Connection>& connection, Way& way);
  void PassOn(const std::shared_ptr<Connection>& connection, Way& way);
  void Close(Connection& connection);

  const std::string server_host_;
  const FileDescriptor listener_;
  const uint16_t port_;
  std::atomic<Duration> to_server_ = Duration::zero();
  std::atomic<Duration> from_server_ = Duration::zero();
  EventLoop loop_{"slow-network"};  // last: its thread uses all of the above
};

}  // namespace pushpull
