// SPDX-License-Identifier: Apache-2.0
//
// gRPC channels to a coordinator: of members for their sessions, of commands for one call. No gRPC
// header is needed here.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "pushpull/deadline.h"

#include "runtime/tls/tls_identity.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace pushpull {

struct ControlTarget {
  std::string address;                          // host:port
  std::shared_ptr<const TlsIdentity> tls = {};  // null: no TLS
};

// Keeps gRPC initialized between connections. Otherwise it stops its threads with the last one and
// restarts them with the next, which costs more than a call.
class ControlLibrary {
 public:
  ControlLibrary();
  ~ControlLibrary();
  ControlLibrary(const ControlLibrary&) = delete;
  ControlLibrary& operator=(const ControlLibrary&) = delete;
};

// A channel that nobody else shares, for a session. Each attempt to connect takes `connect_timeout`
// at most, gRPC's default without.
std::shared_ptr<grpc::Channel> MakeControlChannel(
    const ControlTarget& target, std::optional<Duration> connect_timeout = std::nullopt);
// For single calls, whose answers have 4 MiB at most: longer ones are kResourceExhausted.
std::shared_ptr<grpc::Channel> MakeRequestChannel(const ControlTarget& target);

}  // namespace pushpull
