// SPDX-License-Identifier: Apache-2.0
//
// Kinds and keys of objects, and their request targets. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull_operator {

enum class Scope { kNamespaced, kCluster };

// A kind, as in URLs.
struct ResourceType {
  std::string group;    // empty: the core group
  std::string version;  // "v1"
  std::string plural;   // "pods"
  Scope scope = Scope::kNamespaced;
  friend bool operator==(const ResourceType&, const ResourceType&) = default;
};

// Identifies an object of a kind. The namespace is empty for cluster-scoped kinds.
struct ObjectKey {
  std::string object_namespace;
  std::string name;
  friend bool operator==(const ObjectKey&, const ObjectKey&) = default;
  friend auto operator<=>(const ObjectKey&, const ObjectKey&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const ObjectKey& key) {
    return H::combine(std::move(state), key.object_namespace, key.name);
  }
};

// "default/mnist"; the name alone without a namespace.
std::string ToString(const ObjectKey& key);

using Query = std::vector<std::pair<std::string, std::string>>;

// "/api/v1/namespaces/default/pods", percent-encoded; all namespaces if `object_namespace` is
// empty.
std::string CollectionTarget(const ResourceType& type, absl::string_view object_namespace);

// "/apis/pushpull.dev/v1alpha1/namespaces/default/trainingjobs/mnist/status"; `subresource` may be
// empty.
std::string ObjectTarget(const ResourceType& type,
                         const ObjectKey& key,
                         absl::string_view subresource = "");

// Appends "?key=value&..."; parameters with empty values are omitted.
std::string WithQuery(std::string target, const Query& query);

}  // namespace pushpull_operator
