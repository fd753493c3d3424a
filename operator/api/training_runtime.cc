// SPDX-License-Identifier: Apache-2.0
#include "operator/api/training_runtime.h"

#include "absl/strings/str_cat.h"

#include "operator/kube/json_fields.h"

namespace pushpull_operator {
namespace {

// As large as a manifest may be. A job's object has room for it in addition to its own spec.
constexpr size_t kSpecBytesMax = size_t{1} << 18;

// A merge patch cannot write a null, and what cannot be recorded must not be part of what was read.
Json WithoutNulls(const Json& json) {
  if (!json.is_structured()) return json;
  Json kept = json.is_array() ? Json::array() : Json::object();
  for (const auto& [key, value] : json.items()) {
    if (json.is_array()) {
      kept.push_back(WithoutNulls(value));
    } else if (!value.is_null()) {
      kept[key] = WithoutNulls(value);
    }
  }
  return kept;
}

}  // namespace

TrainingRuntime DecodeTrainingRuntimeObject(const Object& object) {
  TrainingRuntime runtime{.record = {.name = object.meta.key.name,
                                     .uid = object.meta.uid,
                                     .generation = object.meta.generation},
                          .problem = object.problem};
  std::string spec = ToText(WithoutNulls(ObjectField(*object.json, "spec")));
  if (runtime.problem.empty() && spec.size() > kSpecBytesMax)
    runtime.problem = absl::StrCat("has ", spec.size(), " bytes, at most ", kSpecBytesMax);
  if (runtime.problem.empty()) runtime.record.spec = std::move(spec);
  return runtime;
}

}  // namespace pushpull_operator
