// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/object.h"

#include <optional>
#include <utility>

#include "operator/kube/json_fields.h"

namespace pushpull_operator {
namespace {

std::string ControllerUid(const Json& metadata) {
  const Json* owners = Find(metadata, "ownerReferences");
  if (owners == nullptr || !owners->is_array()) return "";
  for (const Json& owner : *owners) {
    const Json* controller = Find(owner, "controller");
    if (controller != nullptr && controller->is_boolean() && controller->get<bool>()) {
      return StringField(owner, "uid");
    }
  }
  return "";
}

ObjectMeta DecodeMeta(const Json& metadata) {
  ObjectMeta meta{.key = {.object_namespace = StringField(metadata, "namespace"),
                          .name = StringField(metadata, "name")},
                  .uid = StringField(metadata, "uid"),
                  .resource_version = StringField(metadata, "resourceVersion"),
                  .generation = IntField(metadata, "generation").value_or(0),
                  .is_deleting = !StringField(metadata, "deletionTimestamp").empty(),
                  .controller_uid = ControllerUid(metadata)};
  if (const Json* labels = Find(metadata, "labels"); labels != nullptr && labels->is_object()) {
    for (const auto& [key, value] : labels->items()) {
      if (value.is_string()) meta.labels[key] = value.get<std::string>();
    }
  }
  return meta;
}

}  // namespace

absl::StatusOr<Object> DecodeObject(Json json) {
  const Json* metadata = Find(json, "metadata");
  if (metadata == nullptr || !metadata->is_object()) {
    return absl::DataLossError("the API server sent an object without metadata");
  }
  ObjectMeta meta = DecodeMeta(*metadata);
  return Object{.meta = std::move(meta), .json = std::make_shared<const Json>(std::move(json))};
}

absl::StatusOr<Object> ParseObject(absl::string_view text) {
  std::optional<Json> json = ParseApiJson(text);
  if (!json.has_value())
    return absl::DataLossError("the API server sent an answer that is not JSON");
  return DecodeObject(*std::move(json));
}

std::string ToText(const Object& object) {
  return ToText(*object.json);
}

}  // namespace pushpull_operator
