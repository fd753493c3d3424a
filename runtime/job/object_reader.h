// SPDX-License-Identifier: Apache-2.0
//
// Reads one object of a manifest field by field: each field has a type and a range, a value that
// does not fit becomes a problem with its path, and fields that were not asked for are unknown.
// This is to the codec what the schema of the CRD is to the API server; decode.cc lists the fields.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/job/enum_names.h"
#include "runtime/job/problems.h"
#include "runtime/job/tree.h"

namespace pushpull {

// Both ends are included.
struct IntRange {
  int min;
  int max;
};

// Every Read function returns whether it read the field; if that is missing, null or wrong, `out`
// keeps its value, which is the default. The tree and the problems must outlive the reader.
// Thread-compatible.
class ObjectReader {
 public:
  // If `tree` is not an object, adds a problem and reads it as an object without fields.
  ObjectReader(const Tree& tree, std::string path, Problems& problems);
  ObjectReader(const ObjectReader&) = delete;
  ObjectReader& operator=(const ObjectReader&) = delete;
  // Every field that was not asked for becomes a problem, with the name that was probably meant.
  ~ObjectReader();

  const std::string& path() const { return path_; }

  bool ReadBool(absl::string_view key, bool& out);
  // `out` of the following two may be a std::optional, for a field that may be unset.
  template <typename Out>
  bool ReadInt(absl::string_view key, IntRange range, Out& out) {
    const std::optional<int> value = IntAt(key, range);
    if (value) out = *value;
    return value.has_value();
  }
  template <typename Out>
  bool ReadSeconds(absl::string_view key, IntRange range, Out& out) {
    const std::optional<int> value = IntAt(key, range);
    if (value) out = std::chrono::seconds(*value);
    return value.has_value();
  }
  bool ReadString(absl::string_view key, std::string& out);
  bool ReadInts(absl::string_view key, size_t items_max, IntRange range, std::vector<int>& out);
  // A required field with only one valid value.
  void ReadConstant(absl::string_view key, absl::string_view expected);
  bool ReadStrings(absl::string_view key, size_t items_max, std::vector<std::string>& out);
  bool ReadStringMap(absl::string_view key, std::map<std::string, std::string>& out);
  // An object that is passed through, as JSON.
  bool ReadJson(absl::string_view key, std::string& out);
  // A list of such objects.
  bool ReadJsons(absl::string_view key, size_t items_max, std::vector<std::string>& out);
  // Calls `read` with a reader of the object.
  bool ReadObject(absl::string_view key, const std::function<void(ObjectReader&)>& read);
  // Calls `read` for each object of a list.
  bool ReadObjects(absl::string_view key,
                   size_t items_max,
                   const std::function<void(ObjectReader&)>& read);
  template <typename Enum>
  bool ReadEnum(absl::string_view key, Enum& out) {
    const std::optional<size_t> chosen = ReadChoice(key, kEnumNames<Enum>);
    if (chosen) out = ValueAt<Enum>(*chosen);
    return chosen.has_value();
  }
  template <typename Enum>
  bool ReadEnum(absl::string_view key, std::optional<Enum>& out) {
    Enum value{};
    const bool was_read = ReadEnum(key, value);
    if (was_read) out = value;
    return was_read;
  }

  // Adds a problem when the field is missing or null, unless the tree is not an object at all.
  void Require(absl::string_view key);
  // Adds `text` as a problem when the field is present, whatever its value.
  void Refuse(absl::string_view key, absl::string_view text);
  // Fields that are not asked for are passed through.
  void AllowUnknown() { allows_unknown_ = true; }
  // The field is allowed and has no meaning here.
  void Skip(absl::string_view key) { Take(key); }

 private:
  // The value of a field, which counts as known from now on; null when it is missing or null.
  const Tree* Take(absl::string_view key);
  // Like Take, but adds a problem and returns null when the value is of another kind.
  const Tree* Take(absl::string_view key, Tree::Kind kind, absl::string_view kind_name);
  // Like Take for a list, but adds a problem and returns null when it has more than `items_max`
  // items.
  const Tree* TakeList(absl::string_view key, absl::string_view kind_name, size_t items_max);
  bool ReadString(const Tree& tree, const std::string& path, std::string& out);
  std::optional<int> IntFrom(const Tree& tree, const std::string& path, IntRange range);
  std::optional<int> IntAt(absl::string_view key, IntRange range);
  // The position of the field's string in `names`.
  std::optional<size_t> ReadChoice(absl::string_view key, std::span<const absl::string_view> names);

  const Tree& tree_;
  const std::string path_;
  Problems& problems_;
  std::vector<absl::string_view> known_;  // keys asked for so far
  bool allows_unknown_ = false;
};

}  // namespace pushpull
