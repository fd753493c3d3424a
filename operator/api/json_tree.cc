// SPDX-License-Identifier: Apache-2.0
#include "operator/api/json_tree.h"

#include <cstdint>
#include <optional>

#include "operator/kube/json_fields.h"

namespace pushpull_operator {

using pushpull::MakeTree;
using pushpull::Tree;

namespace {

Tree NumberTree(const Json& json) {
  const std::optional<int64_t> integer = ToInt(json);
  Tree tree = MakeTree(integer ? Tree::Kind::kInteger : Tree::Kind::kNumber, ToText(json));
  if (integer) {
    tree.integer = *integer;
  } else {
    tree.number = json.get<double>();
  }
  return tree;
}

Tree ListTree(const Json& json) {
  Tree tree = MakeTree(Tree::Kind::kList);
  tree.items.reserve(json.size());
  for (const Json& item : json) tree.items.push_back(ToTree(item));
  return tree;
}

Tree ObjectTree(const Json& json) {
  Tree tree = MakeTree(Tree::Kind::kObject);
  tree.fields.reserve(json.size());
  for (const auto& [key, value] : json.items()) tree.fields.push_back({key, ToTree(value)});
  return tree;
}

}  // namespace

Tree ToTree(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean: {
      Tree tree = MakeTree(Tree::Kind::kBool, ToText(json));
      tree.boolean = json.get<bool>();
      return tree;
    }
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float:
      return NumberTree(json);
    case Json::value_t::string:
      return MakeTree(Tree::Kind::kString, json.get<std::string>());
    case Json::value_t::array:
      return ListTree(json);
    case Json::value_t::object:
      return ObjectTree(json);
    case Json::value_t::null:
    case Json::value_t::binary:
    case Json::value_t::discarded:
      break;
  }
  return Tree{};
}

}  // namespace pushpull_operator
