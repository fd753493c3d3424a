// SPDX-License-Identifier: Apache-2.0
//
// Reads fields of JSON that others wrote, where anything may be missing or of another kind. For .cc
// files of operator/kube and operator/api.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include <nlohmann/json.hpp>

namespace pushpull_operator {

using Json = nlohmann::json;

// Deeper than any object of Kubernetes (a schema of a CRD has about 40 levels), and shallow enough
// for the library's recursive functions.
inline constexpr int kJsonDepthMax = 200;

// Nothing where the text is no JSON, or nests deeper than kJsonDepthMax. Throws nothing.
std::optional<Json> ParseJson(absl::string_view text);

// The same of what an API server sent, without what it notes for each field of an object: who wrote
// it (metadata.managedFields). That is a third of an object, and nobody here asks.
std::optional<Json> ParseApiJson(absl::string_view text);

// The field, null where `json` is no object or has no such field.
const Json* Find(const Json& json, absl::string_view key);

// Nothing where the value is no integer of 64 bits.
std::optional<int64_t> ToInt(const Json& json);

// Empty, or nothing, where the field is missing or of another kind.
std::string StringField(const Json& json, absl::string_view key);
std::optional<int64_t> IntField(const Json& json, absl::string_view key);

// The value on one line; bytes that are no UTF-8 are replaced.
std::string ToText(const Json& json);

}  // namespace pushpull_operator
