// SPDX-License-Identifier: Apache-2.0
//
// How clients connect to a coordinator: members for their sessions, commands for one call. No gRPC
// header is needed here.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/base/deadline.h"
#include "runtime/tls/tls_identity.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace pushpull {

struct ControlTarget {
  std::string address;                          // host:port
  std::shared_ptr<const TlsIdentity> tls = {};  // null: no TLS
};

// Keeps gRPC ready between connections. Otherwise it ends its threads with the last one, and starts
// them with the next, which costs more than a call.
class ControlLibrary {
 public:
  ControlLibrary();
  ~ControlLibrary();
  ControlLibrary(const ControlLibrary&) = delete;
  ControlLibrary& operator=(const ControlLibrary&) = delete;
};

// A connection of its own, that nobody else has. Connecting is given up after `connect_timeout`,
// gRPC's own default without.
std::shared_ptr<grpc::Channel> MakeControlChannel(
    const ControlTarget& target, std::optional<Duration> connect_timeout = std::nullopt);

}  // namespace pushpull
