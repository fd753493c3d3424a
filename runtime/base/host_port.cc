// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/host_port.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

absl::Status NoHostPort(absl::string_view text, absl::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat(name,
                   name.empty() ? "" : ": ",
                   "must be host:port with a port from 0 to 65535, is \"",
                   text,
                   "\""));
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text, absl::string_view name) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return NoHostPort(text, name);
  absl::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of("[]:") != absl::string_view::npos) {
    return NoHostPort(text, name);
  }
  uint32_t port = 0;
  if (host.empty() || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535)
    return NoHostPort(text, name);
  return HostPort{.host = std::string(host), .port = static_cast<uint16_t>(port)};
}

std::string ToString(const HostPort& address) {
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  return is_ipv6 ? absl::StrCat("[", address.host, "]:", address.port)
                 : absl::StrCat(address.host, ":", address.port);
}

bool IsWildcard(const HostPort& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.host.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  if (found->ai_family == AF_INET) {
    const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(found->ai_addr);
    return ipv4->sin_addr.s_addr == INADDR_ANY;
  }
  const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(found->ai_addr);
  return found->ai_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&ipv6->sin6_addr);
}

absl::StatusOr<FileDescriptor> BindTo(const HostPort& address) {
  const std::string what = absl::StrCat("listen on ", ToString(address));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address.port);
  const int failure = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (failure != 0) return absl::UnavailableError(absl::StrCat(what, ": ", gai_strerror(failure)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);

  FileDescriptor bound(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!bound.is_open()) return StatusFromErrno(errno, what);
  const int on = 1;
  setsockopt(bound.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(bound.get(), found->ai_addr, found->ai_addrlen) != 0)
    return StatusFromErrno(errno, what);
  return bound;
}

absl::StatusOr<uint16_t> BoundPort(const FileDescriptor& socket) {
  sockaddr_in6 address{};  // an IPv4 address has its port at the same offset
  socklen_t length = sizeof address;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return StatusFromErrno(errno, "getsockname");
  return ntohs(address.sin6_port);
}

}  // namespace pushpull
