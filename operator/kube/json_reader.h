// SPDX-License-Identifier: Apache-2.0
//
// Reads JSON of the API server with the parser's events
// (docs/decisions/0059-one-object-at-a-time.md): what one object nests too deep, or has too much
// of, is left out and told, and the rest is read. For .cc files of operator/kube. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include <nlohmann/json.hpp>

namespace pushpull_operator {

// Levels of one object: deeper than any of Kubernetes (a schema of a CRD has about 40), and shallow
// enough for the library's recursive functions.
inline constexpr int kJsonDepthMax = 200;

// Bounds what one object costs in memory, several times as much: of its metadata, of its status and
// of everything else, each, this many bytes of keys and texts, kJsonValueCost more for each value.
// A spec above 256 KiB has no use: it is an annotation of the coordinator's pod.
inline constexpr size_t kJsonCostMax = size_t{1} << 20;
inline constexpr size_t kJsonValueCost = 16;

struct ReadValue {
  nlohmann::json
      json;  // without metadata.managedFields, a third of an object that nobody here uses
  // What else was left out and why, of the first such field; empty: nothing.
  std::string problem;
};

// Nothing if the text is not one JSON value. Does not throw.
std::optional<ReadValue> ReadJson(absl::string_view text);

// What a field of an envelope has: one object, or a list of them.
enum class Holds { kObject, kList };

// Hands over what the field `key` of the text holds, value by value as each is read, so that only
// one of them is in memory. Returns the rest of the text: without the field, or with an empty list
// in it. Nothing if the text is not one JSON value; then what was handed over may be part of one.
std::optional<nlohmann::json> ReadEnvelope(absl::string_view text,
                                           absl::string_view key,
                                           Holds holds,
                                           absl::FunctionRef<void(ReadValue)> on_value);

}  // namespace pushpull_operator
