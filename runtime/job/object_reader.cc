// SPDX-License-Identifier: Apache-2.0
//
// Types, ranges and their messages; see object_reader.h.
#include "runtime/job/object_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/printable.h"

namespace pushpull {

namespace {

std::string NotA(absl::string_view kind_name, const Tree& tree) {
  return absl::StrCat("must be ", kind_name, ", is ", Describe(tree));
}

// All items, or nothing if `read` cannot take one; `read` is called for every item, even after
// that.
template <typename Item, typename Read>
bool ReadItems(const Tree& list, std::vector<Item>& out, Read read) {
  std::vector<Item> values(list.items.size());
  bool is_sound = true;
  for (size_t i = 0; i < values.size(); ++i)
    is_sound = read(list.items[i], i, values[i]) && is_sound;
  if (is_sound) out = std::move(values);
  return is_sound;
}

}  // namespace

ObjectReader::ObjectReader(const Tree& tree, std::string path, Problems& problems)
    : tree_(tree), path_(std::move(path)), problems_(problems) {
  if (tree_.kind != Tree::Kind::kObject) problems_.Add(path_, NotA("an object", tree_));
}

ObjectReader::~ObjectReader() {
  if (allows_unknown_) return;
  for (const Tree::Field& field : tree_.fields) {
    if (std::find(known_.begin(), known_.end(), field.key) != known_.end()) continue;
    std::string text = "is not a known field";
    // Finding a close name costs more than the rest: not for thousands of fields that are only
    // counted.
    const absl::string_view meant = problems_.is_full() ? "" : ClosestName(field.key, known_);
    if (!meant.empty()) absl::StrAppend(&text, "; did you mean ", meant, "?");
    problems_.Add(JoinPath(path_, field.key), std::move(text));
  }
}

const Tree* ObjectReader::Take(absl::string_view key) {
  known_.push_back(key);
  const Tree* value = FindField(tree_, key);
  return value == nullptr || value->kind == Tree::Kind::kNull ? nullptr : value;
}

const Tree* ObjectReader::Take(absl::string_view key,
                               Tree::Kind kind,
                               absl::string_view kind_name) {
  const Tree* value = Take(key);
  if (value == nullptr || value->kind == kind) return value;
  problems_.Add(JoinPath(path_, key), NotA(kind_name, *value));
  return nullptr;
}

const Tree* ObjectReader::TakeList(absl::string_view key,
                                   absl::string_view kind_name,
                                   size_t items_max) {
  const Tree* list = Take(key, Tree::Kind::kList, kind_name);
  if (list == nullptr || list->items.size() <= items_max) return list;
  problems_.Add(JoinPath(path_, key),
                absl::StrCat("must have at most ", items_max, " items, has ", list->items.size()));
  return nullptr;
}

void ObjectReader::Require(absl::string_view key) {
  const bool is_missing = Take(key) == nullptr;
  if (is_missing && tree_.kind == Tree::Kind::kObject) {
    problems_.Add(JoinPath(path_, key), "must be set");
  }
}

void ObjectReader::Refuse(absl::string_view key, absl::string_view text) {
  known_.push_back(key);
  if (FindField(tree_, key) != nullptr) problems_.Add(JoinPath(path_, key), std::string(text));
}

bool ObjectReader::ReadBool(absl::string_view key, bool& out) {
  const Tree* value = Take(key, Tree::Kind::kBool, "true or false");
  if (value != nullptr) out = value->boolean;
  return value != nullptr;
}

std::optional<int> ObjectReader::IntFrom(const Tree& tree,
                                         const std::string& path,
                                         IntRange range) {
  if (tree.kind != Tree::Kind::kInteger) {
    problems_.Add(path, NotA("an integer", tree));
    return std::nullopt;
  }
  if (tree.integer >= range.min && tree.integer <= range.max) return static_cast<int>(tree.integer);
  problems_.Add(
      path, absl::StrCat("must be between ", range.min, " and ", range.max, ", is ", tree.integer));
  return std::nullopt;
}

std::optional<int> ObjectReader::IntAt(absl::string_view key, IntRange range) {
  const Tree* value = Take(key);
  return value == nullptr ? std::nullopt : IntFrom(*value, JoinPath(path_, key), range);
}

bool ObjectReader::ReadString(const Tree& tree, const std::string& path, std::string& out) {
  if (tree.kind == Tree::Kind::kString) {
    out = tree.text;
    return true;
  }
  const bool is_unquoted = tree.kind != Tree::Kind::kList && tree.kind != Tree::Kind::kObject;
  problems_.Add(path,
                absl::StrCat(NotA("a string", tree), is_unquoted ? "; put it in quotes" : ""));
  return false;
}

bool ObjectReader::ReadString(absl::string_view key, std::string& out) {
  const Tree* value = Take(key);
  return value != nullptr && ReadString(*value, JoinPath(path_, key), out);
}

bool ObjectReader::ReadInts(absl::string_view key,
                            size_t items_max,
                            IntRange range,
                            std::vector<int>& out) {
  const Tree* list = TakeList(key, "a list of integers", items_max);
  return list != nullptr && ReadItems(*list, out, [&](const Tree& item, size_t i, int& value) {
           const auto number = IntFrom(item, JoinPath(JoinPath(path_, key), i), range);
           value = number.value_or(0);
           return number.has_value();
         });
}

void ObjectReader::ReadConstant(absl::string_view key, absl::string_view expected) {
  std::string value;
  Require(key);
  if (ReadString(key, value) && value != expected)
    Refuse(key, absl::StrCat("must be ", expected, ", is ", Quoted(value)));
}

bool ObjectReader::ReadStrings(absl::string_view key,
                               size_t items_max,
                               std::vector<std::string>& out) {
  const Tree* list = TakeList(key, "a list of strings", items_max);
  return list != nullptr && ReadItems(*list, out, [&](const Tree& item, size_t i, auto& value) {
           return ReadString(item, JoinPath(JoinPath(path_, key), i), value);
         });
}

bool ObjectReader::ReadStringMap(absl::string_view key, std::map<std::string, std::string>& out) {
  const Tree* object = Take(key, Tree::Kind::kObject, "an object");
  if (object == nullptr) return false;
  std::map<std::string, std::string> values;
  bool is_sound = true;
  for (const Tree::Field& field : object->fields) {
    const std::string path = JoinPath(JoinPath(path_, key), field.key);
    is_sound = ReadString(field.value, path, values[field.key]) && is_sound;
  }
  if (is_sound) out = std::move(values);
  return is_sound;
}

bool ObjectReader::ReadJson(absl::string_view key, std::string& out) {
  const Tree* object = Take(key, Tree::Kind::kObject, "an object");
  if (object != nullptr) out = ToJson(*object);
  return object != nullptr;
}

bool ObjectReader::ReadJsons(absl::string_view key,
                             size_t items_max,
                             std::vector<std::string>& out) {
  const Tree* list = TakeList(key, "a list of objects", items_max);
  return list != nullptr && ReadItems(*list, out, [&](const Tree& item, size_t i, auto& value) {
           if (item.kind == Tree::Kind::kObject) {
             value = ToJson(item);
             return true;
           }
           problems_.Add(JoinPath(JoinPath(path_, key), i), NotA("an object", item));
           return false;
         });
}

bool ObjectReader::ReadObject(absl::string_view key,
                              const std::function<void(ObjectReader&)>& read) {
  const Tree* object = Take(key, Tree::Kind::kObject, "an object");
  if (object == nullptr) return false;
  ObjectReader reader(*object, JoinPath(path_, key), problems_);
  read(reader);
  return true;
}

bool ObjectReader::ReadObjects(absl::string_view key,
                               size_t items_max,
                               const std::function<void(ObjectReader&)>& read) {
  const Tree* list = TakeList(key, "a list of objects", items_max);
  if (list == nullptr) return false;
  const std::string path = JoinPath(path_, key);
  for (size_t i = 0; i < list->items.size(); ++i) {
    ObjectReader reader(list->items[i], JoinPath(path, i), problems_);
    read(reader);
  }
  return true;
}

std::optional<size_t> ObjectReader::ReadChoice(absl::string_view key,
                                               std::span<const absl::string_view> names) {
  const Tree* value = Take(key);
  if (value == nullptr) return std::nullopt;
  for (size_t i = 0; i < names.size(); ++i) {
    if (value->kind == Tree::Kind::kString && value->text == names[i]) return i;
  }
  problems_.Add(
      JoinPath(path_, key),
      absl::StrCat("must be one of ", absl::StrJoin(names, ", "), ", is ", Describe(*value)));
  return std::nullopt;
}

}  // namespace pushpull
