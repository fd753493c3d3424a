// SPDX-License-Identifier: Apache-2.0
//
// gRPC channels to a coordinator: for members' sessions, and for single calls of commands. Needs no
// gRPC header.
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

// Keeps gRPC initialized between connections. Otherwise gRPC stops its threads after the last one
// and restarts them for the next, which costs more than a call.
class ControlLibrary {
 public:
  ControlLibrary();
  ~ControlLibrary();
  ControlLibrary(const ControlLibrary&) = delete;
  ControlLibrary& operator=(const ControlLibrary&) = delete;
};

// A channel of its own for one session. Each attempt to connect takes at most `connect_timeout`, by
// default gRPC's.
std::shared_ptr<grpc::Channel> MakeControlChannel(
    const ControlTarget& target, std::optional<Duration> connect_timeout = std::nullopt);
// For single calls, whose answers have at most 4 MiB: longer ones are kResourceExhausted.
std::shared_ptr<grpc::Channel> MakeRequestChannel(const ControlTarget& target);

}  // namespace pushpull
