// SPDX-License-Identifier: Apache-2.0
//
// Reads JSON from the API server event by event (docs/decisions/0059-one-object-at-a-time.md):
// parts of an object that are nested too deeply, or too large, are left out and reported, and the
// rest is read. For .cc files of operator/kube. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include <nlohmann/json.hpp>

namespace pushpull_operator {

// Levels of one object: deeper than any object of Kubernetes (a CRD's schema has about 40), and
// shallow enough for the library's recursive functions.
inline constexpr int kJsonDepthMax = 200;

// Bounds the size of one object, which takes several times as much memory. Its metadata, its status
// and everything else may each have this many bytes of keys and texts, with kJsonValueCost added
// for each value. A spec above 256 KiB has no use: it becomes an annotation of the coordinator's
// pod.
inline constexpr size_t kJsonCostMax = size_t{1} << 20;
inline constexpr size_t kJsonValueCost = 16;

struct ReadValue {
  nlohmann::json
      json;  // without metadata.managedFields, a third of an object that nobody here uses
  // The first other field that was left out, and why; empty: none.
  std::string problem;
};

// Nothing if the text is not one JSON value. Does not throw.
std::optional<ReadValue> ReadJson(absl::string_view text);

// What a field of an envelope holds: one object, or a list of them.
enum class Holds { kObject, kList };

// Passes on what the field `key` of the text holds, value by value as each is read, so that only
// one of them is in memory. Returns the rest of the text: without the field, or with an empty list
// in it. Nothing if the text is not one JSON value; what was passed on may then be incomplete.
std::optional<nlohmann::json> ReadEnvelope(absl::string_view text,
                                           absl::string_view key,
                                           Holds holds,
                                           absl::FunctionRef<void(ReadValue)> on_value);

}  // namespace pushpull_operator
