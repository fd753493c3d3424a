// SPDX-License-Identifier: Apache-2.0
//
// An object of the API server: its kind and key, with request targets for them; metadata as a
// struct; everything except metadata.managedFields as JSON for the codecs of operator/api.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include <nlohmann/json_fwd.hpp>

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

struct ObjectMeta {
  ObjectKey key;
  std::string uid;
  std::string resource_version;  // compared for equality only
  int64_t generation = 0;
  bool is_deleting = false;  // has a deletionTimestamp
  std::map<std::string, std::string> labels;
  std::string controller_uid;  // of the owner reference with controller: true; empty: none
};

struct Object {
  ObjectMeta meta;
  std::shared_ptr<const nlohmann::json> json;  // never null in an object from the client
  // Why `json` lacks parts of the object other than metadata.managedFields (json_reader.h): "spec
  // nests deeper than 200 levels". Empty: it lacks none.
  std::string problem;
};

// kDataLoss if `json` is not an object with metadata; fields that are missing or of another type
// keep their defaults. `problem` becomes the object's.
absl::StatusOr<Object> DecodeObject(nlohmann::json json, std::string problem);

absl::StatusOr<Object> ParseObject(absl::string_view text);

// As JSON.
std::string ToText(const Object& object);

}  // namespace pushpull_operator
