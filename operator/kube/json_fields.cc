// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/json_fields.h"

#include <utility>

#include "operator/kube/json_reader.h"

namespace pushpull_operator {

std::optional<Json> ParseJson(absl::string_view text) {
  std::optional<ReadValue> read = ReadJson(text);
  if (!read || !read->problem.empty()) return std::nullopt;
  return std::move(read->json);
}

const Json* Find(const Json& json, absl::string_view key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(std::string(key));
  return found == json.end() ? nullptr : &*found;
}

std::string StringField(const Json& json, absl::string_view key) {
  const Json* field = Find(json, key);
  return field != nullptr && field->is_string() ? field->get<std::string>() : "";
}

std::optional<int64_t> ToInt(const Json& json) {
  if (!json.is_number_integer()) return std::nullopt;
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
  return json.get<int64_t>();
}

std::optional<int64_t> IntField(const Json& json, absl::string_view key) {
  const Json* field = Find(json, key);
  return field == nullptr ? std::nullopt : ToInt(*field);
}

const Json& ListField(const Json& json, absl::string_view key) {
  static const Json none = Json::array();
  const Json* field = Find(json, key);
  return field != nullptr && field->is_array() ? *field : none;
}

const Json& ObjectField(const Json& json, absl::string_view key) {
  static const Json none = Json::object();
  const Json* field = Find(json, key);
  return field != nullptr && field->is_object() ? *field : none;
}

std::string ToText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pushpull_operator
