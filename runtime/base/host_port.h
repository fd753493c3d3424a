// SPDX-License-Identifier: Apache-2.0
//
// Addresses as people write them, "host:port", and the question that every listener asks first:
// whether it can listen there. Libraries that bind for us do not say why they could not.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

struct HostPort {
  std::string host;  // a name or an address; IPv6 without its brackets
  uint16_t port = 0;
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// "127.0.0.1:7170", "node-3:7170" or "[::1]:7170". kInvalidArgument names the text and the form.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

// With brackets around an IPv6 address.
std::string ToString(const HostPort& address);

// Whether the host stands for all addresses of a machine, 0.0.0.0 or ::, in any spelling: one can
// listen there, and nobody can connect to it from another machine. No look-up of names.
bool IsWildcard(const HostPort& address);

// Whether a TCP listener can be bound to `address` now; port 0 asks about the host only. Blocks for
// a look-up of the name. The answer may be outdated at once, so it serves the text of an error and
// the bind that follows is still checked.
//
// kAlreadyExists      the port is in use.
// kPermissionDenied   the port is reserved.
// kUnavailable        the host is not an address of this machine, or is no known name.
absl::Status CheckCanListen(const HostPort& address);

}  // namespace pushpull
