// SPDX-License-Identifier: Apache-2.0
//
// Addresses in the form that sockets take, and name lookup.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/host_port.h"

namespace pushpull {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Whether `host` is an address, so that LookUp does not block.
bool IsNumeric(const std::string& host);

enum class LookUpFor { kConnecting, kListening };

// All addresses of a host, best first, at least one; kUnavailable if it has none (yet). For a name,
// blocks as long as the resolver is configured to.
absl::StatusOr<std::vector<SocketAddress>> LookUp(const HostPort& address, LookUpFor purpose);

// Whether the peer of a connected socket has the same address as this side: both are on one host,
// or in one pod.
bool IsToOwnAddress(int socket);

// host:port of this end and of the peer's.
std::string LocalAddress(int socket);
std::string PeerAddress(int socket);

}  // namespace pushpull
