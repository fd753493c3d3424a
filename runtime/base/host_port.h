// SPDX-License-Identifier: Apache-2.0
//
// Addresses as people write them, "host:port", and binding to them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "runtime/base/file_descriptor.h"

namespace pushpull {

struct HostPort {
  std::string host;  // a name or an address; IPv6 without its brackets
  uint16_t port = 0;
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// "127.0.0.1:7170", "node-3:7170" or "[::1]:7170". kInvalidArgument names the text, the form and
// `name`, where the text comes from: a flag or a variable; empty: whoever shows the error says so.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text, absl::string_view name = "address");

// With brackets around an IPv6 address.
std::string ToString(const HostPort& address);

// Whether the host stands for all addresses of a machine, 0.0.0.0 or ::, in any spelling: one can
// listen there, but no other machine can connect to it. Looks up no names.
bool IsWildcard(const HostPort& address);

// A non-blocking TCP socket that is bound to `address` and does not listen yet; port 0 takes a free
// port. Blocks while a name is looked up. A library that binds by itself does not say why it
// cannot: bind and close first to get the error text.
//
//   kAlreadyExists     the port is in use
//   kPermissionDenied  the port is reserved
//   kUnavailable       the host is not an address of this machine, or an unknown name
absl::StatusOr<FileDescriptor> BindTo(const HostPort& address);

// The port that a bound socket has.
absl::StatusOr<uint16_t> BoundPort(const FileDescriptor& socket);

}  // namespace pushpull
