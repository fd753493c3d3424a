// SPDX-License-Identifier: Apache-2.0
//
// Address of the API server and the operator's credentials, from a kubeconfig or from a pod's
// service account. credentials.h reads the files named here.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "operator/kube/http_exchange.h"

namespace pushpull_operator {

// A text, or a file that may change. Both empty: none.
struct Source {
  std::string text;
  std::string file;
  bool empty() const { return text.empty() && file.empty(); }
  friend bool operator==(const Source&, const Source&) = default;
};

struct ClusterAccess {
  ServerAddress server;
  std::string path_prefix;  // before every target, without its last slash; mostly empty
  Source authorities;       // PEM; empty: the system's
  Source certificate;       // PEM
  Source private_key;       // PEM
  Source token;
  ServerCheck check = ServerCheck::kVerify;
  std::string default_namespace = "default";
  friend bool operator==(const ClusterAccess&, const ClusterAccess&) = default;
};

// Parses a kubeconfig and selects the context `context`; empty: the current one. `file` is where
// the text came from: relative paths are resolved against its folder, and errors name it.
//
// kInvalidArgument, one line per problem with its field: what is unknown or invalid in the context,
// its cluster and its user. Not supported: exec, auth-provider, passwords, proxies, impersonation.
absl::StatusOr<ClusterAccess> ParseKubeconfig(absl::string_view text,
                                              const std::string& file,
                                              const std::string& context);

// Like ParseKubeconfig. kNotFound, kPermissionDenied, ...: the file cannot be read.
absl::StatusOr<ClusterAccess> LoadKubeconfig(const std::string& file, const std::string& context);

// The service account of a pod. `host` and `port` are the values of KUBERNETES_SERVICE_HOST and
// KUBERNETES_SERVICE_PORT; `folder` is where Kubernetes mounts token, ca.crt and namespace.
//
// kFailedPrecondition  host or port is empty: not running in a pod.
absl::StatusOr<ClusterAccess> InClusterAccess(
    const std::string& host,
    const std::string& port,
    const std::string& folder = "/var/run/secrets/kubernetes.io/serviceaccount");

}  // namespace pushpull_operator
