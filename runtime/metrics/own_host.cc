// SPDX-License-Identifier: Apache-2.0
#include "runtime/metrics/own_host.h"

#include <arpa/inet.h>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace pushpull {
namespace {

bool IsAddress(int family, const std::string& text) {
  in6_addr address;  // the larger of the two
  return inet_pton(family, text.c_str(), &address) == 1;
}

}  // namespace

bool IsOwnHost(absl::string_view host, const std::vector<std::string>& names) {
  if (absl::ConsumePrefix(&host, "["))
    return IsAddress(AF_INET6, std::string(host.substr(0, host.find(']'))));
  const absl::string_view without_port = host.substr(0, host.find(':'));
  const std::string name = absl::AsciiStrToLower(absl::StripSuffix(without_port, "."));
  if (IsAddress(AF_INET, name) || name == "localhost" || absl::EndsWith(name, ".localhost"))
    return true;
  return !name.empty() && absl::c_any_of(names, [&](const std::string& own) {
    return absl::EqualsIgnoreCase(own, name);
  });
}

}  // namespace pushpull
