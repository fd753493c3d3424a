// SPDX-License-Identifier: Apache-2.0
//
// Which kind of object, which object, and the request target that stands for it. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull_operator {

enum class Scope { kNamespaced, kCluster };

// A kind as its URLs name it.
struct ResourceType {
  std::string group;    // empty: the core group
  std::string version;  // "v1"
  std::string plural;   // "pods"
  Scope scope = Scope::kNamespaced;
  friend bool operator==(const ResourceType&, const ResourceType&) = default;
};

// The key of an object among those of its kind. The namespace is empty for cluster-wide kinds.
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

// "default/mnist", or the name alone.
std::string ToString(const ObjectKey& key);

using Query = std::vector<std::pair<std::string, std::string>>;

// "/api/v1/namespaces/default/pods", all namespaces when `object_namespace` is empty. Every part is
// percent-encoded.
std::string CollectionTarget(const ResourceType& type, absl::string_view object_namespace);

// "/apis/pushpull.dev/v1alpha1/namespaces/default/trainingjobs/mnist/status"; `subresource` may be
// empty.
std::string ObjectTarget(const ResourceType& type,
                         const ObjectKey& key,
                         absl::string_view subresource = "");

// The target with "?key=value&..."; parameters with empty values are left out.
std::string WithQuery(std::string target, const Query& query);

}  // namespace pushpull_operator
