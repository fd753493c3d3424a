// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a kubeconfig: no crash, no endless work, errors name the file, and what is accepted
// can be connected to.
#include <cstddef>
#include <cstdint>
#include <string>

#include "operator/kube/cluster_access.h"
#include "runtime/base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);

  const absl::StatusOr<pushpull_operator::ClusterAccess> access =
      pushpull_operator::ParseKubeconfig(text, "/etc/kubeconfig", "");

  if (!access.ok()) {
    PUSHPULL_CHECK(std::string(access.status().message()).find("/etc/kubeconfig") !=
                   std::string::npos);
    return 0;
  }
  PUSHPULL_CHECK(!access->server.host.empty() && access->server.port != 0);
  PUSHPULL_CHECK(access->path_prefix.empty() || access->path_prefix.front() == '/');
  PUSHPULL_CHECK(access->certificate.empty() == access->private_key.empty());
  return 0;
}
