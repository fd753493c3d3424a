// SPDX-License-Identifier: Apache-2.0
//
// Where the API server is and with what the operator shows who it is: from a kubeconfig, or from
// what Kubernetes puts into a pod. Reading files for their contents is credentials.h.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "operator/kube/connection.h"
#include "operator/kube/tls_context.h"

namespace pushpull_operator {

// Text, or a file that has it and may change. Both empty: none.
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

// The context `context`, or the current one when it is empty, of a kubeconfig's text. `file` is
// where the text is from: relative paths start in its folder, and errors name it.
//
// kInvalidArgument, one line a problem, each with its field: what is unknown or wrong in the chosen
// context, its cluster and its user; ways to sign in that run programs or need a person (exec,
// auth-provider, password), a proxy and impersonation, which are not supported.
absl::StatusOr<ClusterAccess> ParseKubeconfig(absl::string_view text,
                                              const std::string& file,
                                              const std::string& context);

// As ParseKubeconfig. kNotFound, kPermissionDenied, ...: the file cannot be read.
absl::StatusOr<ClusterAccess> LoadKubeconfig(const std::string& file, const std::string& context);

// What a pod with a service account has. `host` and `port` are the values of
// KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, which the caller reads; `folder` is where
// Kubernetes mounts token, ca.crt and namespace.
//
// kFailedPrecondition  host or port is empty: this is no pod.
absl::StatusOr<ClusterAccess> InClusterAccess(
    const std::string& host,
    const std::string& port,
    const std::string& folder = "/var/run/secrets/kubernetes.io/serviceaccount");

}  // namespace pushpull_operator
