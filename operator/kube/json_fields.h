// SPDX-License-Identifier: Apache-2.0
//
// Lenient access to JSON from the API server, where any field may be missing or of another type.
// For .cc files of operator/kube and operator/api.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include <nlohmann/json.hpp>

namespace pushpull_operator {

using Json = nlohmann::json;

// Nothing if the text is not JSON, or exceeds the limits of an object (json_reader.h). Does not
// throw.
std::optional<Json> ParseJson(absl::string_view text);

// The field; null if `json` is not an object or has no such field.
const Json* Find(const Json& json, absl::string_view key);

// Nothing if the value is not a 64-bit integer.
std::optional<int64_t> ToInt(const Json& json);

// Empty, or nothing, if the field is missing or of another type.
std::string StringField(const Json& json, absl::string_view key);
std::optional<int64_t> IntField(const Json& json, absl::string_view key);

// The field if it is a list, or an object; an empty one if it is missing or of another type.
const Json& ListField(const Json& json, absl::string_view key);
const Json& ObjectField(const Json& json, absl::string_view key);

// The value on one line; invalid UTF-8 is replaced.
std::string ToText(const Json& json);

}  // namespace pushpull_operator
