// SPDX-License-Identifier: Apache-2.0
//
// An object as the API server sent it: the metadata that every part of the operator needs as a
// struct, the whole as JSON for the codecs of operator/api, but for metadata.managedFields.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include <nlohmann/json_fwd.hpp>

#include "operator/kube/resource.h"

namespace pushpull_operator {

struct ObjectMeta {
  ObjectKey key;
  std::string uid;
  std::string resource_version;  // compared for equality only
  int64_t generation = 0;
  bool is_deleting = false;  // has a deletionTimestamp
  std::map<std::string, std::string> labels;
  // Of the owner reference with controller: true; empty: none.
  std::string controller_uid;
};

struct Object {
  ObjectMeta meta;
  std::shared_ptr<const nlohmann::json> json;  // never null in an object of the client
};

// The object in `json`. kDataLoss when it is no object with metadata; fields that are missing or of
// another kind keep their defaults.
absl::StatusOr<Object> DecodeObject(nlohmann::json json);

// The same of text.
absl::StatusOr<Object> ParseObject(absl::string_view text);

// The object as JSON text.
std::string ToText(const Object& object);

}  // namespace pushpull_operator
