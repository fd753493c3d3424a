// SPDX-License-Identifier: Apache-2.0
//
// An object of the API server: metadata as a struct, everything but metadata.managedFields as JSON
// for the codecs of operator/api.
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
  std::string controller_uid;  // of the owner reference with controller: true; empty: none
};

struct Object {
  ObjectMeta meta;
  std::shared_ptr<const nlohmann::json> json;  // never null in an object of the client
};

// kDataLoss if `json` is not an object with metadata; fields that are missing or of another type
// keep their defaults.
absl::StatusOr<Object> DecodeObject(nlohmann::json json);

absl::StatusOr<Object> ParseObject(absl::string_view text);

// As JSON.
std::string ToText(const Object& object);

}  // namespace pushpull_operator
