// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/stream/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

HostPort ToHostPort(const SocketAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  HostPort result;
  if (address.family() == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
    result.port = ntohs(v6->sin6_port);
  } else {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
    result.port = ntohs(v4->sin_port);
  }
  result.host = text.data();
  return result;
}

using NameOfEnd = int (*)(int, sockaddr*, socklen_t*);

SocketAddress EndOf(int socket, NameOfEnd name_of_end) {
  SocketAddress address;
  address.length = sizeof address.storage;
  name_of_end(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

}  // namespace

bool IsNumeric(const std::string& host) {
  in_addr v4;
  in6_addr v6;
  return inet_pton(AF_INET, host.c_str(), &v4) == 1 || inet_pton(AF_INET6, host.c_str(), &v6) == 1;
}

absl::StatusOr<std::vector<SocketAddress>> LookUp(const HostPort& address, LookUpFor purpose) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (purpose == LookUpFor::kListening ? AI_PASSIVE : 0);
  addrinfo* first = nullptr;
  const std::string port = absl::StrCat(address.port);
  const int failure = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &first);
  if (failure != 0) {
    return absl::UnavailableError(
        absl::StrCat("look-up of ", address.host, ": ", gai_strerror(failure)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(first, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* found = first; found != nullptr; found = found->ai_next) {
    SocketAddress& copy = addresses.emplace_back();
    std::memcpy(&copy.storage, found->ai_addr, found->ai_addrlen);
    copy.length = found->ai_addrlen;
  }
  return addresses;
}

bool IsToOwnAddress(int socket) {
  const std::string own = ToHostPort(EndOf(socket, &getsockname)).host;
  return !own.empty() && own == ToHostPort(EndOf(socket, &getpeername)).host;
}

std::string LocalAddress(int socket) {
  return ToString(ToHostPort(EndOf(socket, &getsockname)));
}

std::string PeerAddress(int socket) {
  return ToString(ToHostPort(EndOf(socket, &getpeername)));
}

}  // namespace pushpull
