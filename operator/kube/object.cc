// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/object.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "operator/kube/json_fields.h"
#include "operator/kube/json_reader.h"

namespace pushpull_operator {
namespace {

std::string PercentEncoded(absl::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || absl::string_view("-._~").find(c) != absl::string_view::npos) {
      encoded += c;
    } else {
      absl::StrAppend(&encoded, "%", absl::Hex(byte, absl::kZeroPad2));
    }
  }
  return encoded;
}

std::string ControllerUid(const Json& metadata) {
  for (const Json& owner : ListField(metadata, "ownerReferences")) {
    const Json* controller = Find(owner, "controller");
    if (controller != nullptr && *controller == Json(true)) return StringField(owner, "uid");
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
  for (const auto& [key, value] : ObjectField(metadata, "labels").items()) {
    if (value.is_string()) meta.labels[key] = value.get<std::string>();
  }
  return meta;
}

}  // namespace

std::string ToString(const ObjectKey& key) {
  return key.object_namespace.empty() ? key.name
                                      : absl::StrCat(key.object_namespace, "/", key.name);
}

std::string CollectionTarget(const ResourceType& type, absl::string_view object_namespace) {
  std::string target = type.group.empty() ? "/api/" : absl::StrCat("/apis/", type.group, "/");
  absl::StrAppend(&target, type.version);
  if (type.scope == Scope::kNamespaced && !object_namespace.empty()) {
    absl::StrAppend(&target, "/namespaces/", PercentEncoded(object_namespace));
  }
  return absl::StrCat(target, "/", type.plural);
}

std::string ObjectTarget(const ResourceType& type,
                         const ObjectKey& key,
                         absl::string_view subresource) {
  std::string target =
      absl::StrCat(CollectionTarget(type, key.object_namespace), "/", PercentEncoded(key.name));
  if (!subresource.empty()) absl::StrAppend(&target, "/", subresource);
  return target;
}

std::string WithQuery(std::string target, const Query& query) {
  char separator = '?';
  for (const auto& [key, value] : query) {
    if (value.empty()) continue;
    target += separator;
    absl::StrAppend(&target, key, "=", PercentEncoded(value));
    separator = '&';
  }
  return target;
}

absl::StatusOr<Object> DecodeObject(Json json, std::string problem) {
  const Json* metadata = Find(json, "metadata");
  if (metadata == nullptr || !metadata->is_object()) {
    return absl::DataLossError("the API server sent an object without metadata");
  }
  ObjectMeta meta = DecodeMeta(*metadata);
  return Object{.meta = std::move(meta),
                .json = std::make_shared<const Json>(std::move(json)),
                .problem = std::move(problem)};
}

absl::StatusOr<Object> ParseObject(absl::string_view text) {
  std::optional<ReadValue> read = ReadJson(text);
  if (!read) return absl::DataLossError("the API server sent an answer that is not JSON");
  return DecodeObject(std::move(read->json), std::move(read->problem));
}

std::string ToText(const Object& object) {
  return ToText(*object.json);
}

}  // namespace pushpull_operator
