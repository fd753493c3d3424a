// SPDX-License-Identifier: Apache-2.0
//
// Looks into and prints a tree; see tree.h.
#include "runtime/job/tree.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "runtime/job/problems.h"

namespace pushpull {

namespace {

nlohmann::json ToJsonValue(const Tree& tree) {
  switch (tree.kind) {
    case Tree::Kind::kNull:
      return nullptr;
    case Tree::Kind::kBool:
      return tree.boolean;
    case Tree::Kind::kInteger:
      return tree.integer;
    case Tree::Kind::kNumber:
      return tree.number;
    case Tree::Kind::kString:
      return tree.text;
    case Tree::Kind::kList: {
      nlohmann::json list = nlohmann::json::array();
      for (const Tree& item : tree.items) list.push_back(ToJsonValue(item));
      return list;
    }
    case Tree::Kind::kObject: {
      nlohmann::json object = nlohmann::json::object();
      for (const Tree::Field& field : tree.fields) {
        object.emplace(field.key, ToJsonValue(field.value));
      }
      return object;
    }
  }
  return nullptr;
}

// Like BytesSet, inside `tree`, which is at `at`.
size_t BytesSetInside(const Tree& tree, const std::string& at, absl::string_view path) {
  const auto leads_on = [&path](const std::string& inner) {
    const bool is_prefix = path.substr(0, inner.size()) == absl::string_view(inner);
    return is_prefix &&
           (path.size() == inner.size() || path[inner.size()] == '.' || path[inner.size()] == '[');
  };
  for (const Tree::Field& field : tree.fields) {
    const std::string inner = JoinPath(at, field.key);
    const bool is_set = field.value.kind != Tree::Kind::kNull;
    if (is_set && leads_on(inner)) return BytesSetInside(field.value, inner, path);
  }
  for (size_t i = 0; i < tree.items.size(); ++i) {
    const std::string inner = JoinPath(at, i);
    if (leads_on(inner)) return BytesSetInside(tree.items[i], inner, path);
  }
  return at.size();
}

}  // namespace

Tree MakeTree(Tree::Kind kind, absl::string_view text) {
  Tree tree;
  tree.kind = kind;
  tree.text = std::string(text);
  return tree;
}

const Tree* FindField(const Tree& tree, absl::string_view key) {
  const auto found = std::ranges::find(tree.fields, key, &Tree::Field::key);
  return found == tree.fields.end() ? nullptr : &found->value;
}

size_t BytesSet(const Tree& tree, absl::string_view path) {
  return BytesSetInside(tree, "", path);
}

std::string Describe(const Tree& tree) {
  switch (tree.kind) {
    case Tree::Kind::kNull:
      return "null";
    case Tree::Kind::kString:
      return Quoted(tree.text);
    case Tree::Kind::kList:
      return "a list";
    case Tree::Kind::kObject:
      return "an object";
    case Tree::Kind::kBool:
    case Tree::Kind::kInteger:
    case Tree::Kind::kNumber:
      return tree.text.substr(0, 60);
  }
  return "";
}

std::string ToJson(const Tree& tree) {
  constexpr int kOneLine = -1;
  // Bytes that are not valid UTF-8 become U+FFFD: a reader rejects them, but this never throws.
  return ToJsonValue(tree).dump(kOneLine, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace pushpull
