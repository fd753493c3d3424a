// SPDX-License-Identifier: Apache-2.0
#include "runtime/status/page_hosts.h"

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "runtime/base/host_port.h"
#include "runtime/base/printable.h"
#include "runtime/base/status_macros.h"
#include "runtime/job/checkpoint_place.h"

namespace pushpull {
namespace {

// The cluster domain that Kubernetes has unless its administrator chose another.
constexpr char kClusterDomain[] = ".cluster.local";

bool IsHostName(absl::string_view text) {
  return !text.empty() && absl::c_all_of(text, [](char letter) {
    return absl::ascii_isalnum(static_cast<unsigned char>(letter)) || letter == '-' ||
           letter == '_' || letter == '.';
  });
}

}  // namespace

absl::StatusOr<std::vector<std::string>> PageHosts(const JobMetadata& job,
                                                   const std::string& machine,
                                                   const std::string& listen,
                                                   const std::string& named) {
  PUSHPULL_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(listen));
  const std::string service = absl::StrCat(job.name, "-coordinator");
  const std::string in_namespace = absl::StrCat(service, ".", NamespaceOf(job));
  const std::string in_cluster = absl::StrCat(in_namespace, ".svc");
  std::vector<std::string> hosts = {machine,
                                    address.host,
                                    service,
                                    in_namespace,
                                    in_cluster,
                                    absl::StrCat(in_cluster, kClusterDomain)};
  for (absl::string_view host : absl::StrSplit(named, ',', absl::SkipWhitespace())) {
    host = absl::StripAsciiWhitespace(host);
    if (!IsHostName(host)) {
      return absl::InvalidArgumentError(
          absl::StrCat(kPageHostsVariable,
                       ": ",
                       Printable(host),
                       " is not the name of a host; it lists names by which browsers reach the "
                       "status page, without scheme and port: train.example.com,node-3.lan"));
    }
    hosts.emplace_back(host);
  }
  return hosts;
}

}  // namespace pushpull
