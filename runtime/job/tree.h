// SPDX-License-Identifier: Apache-2.0
//
// A manifest between its text and its structs: null, booleans, numbers, strings, lists and objects,
// as JSON has them, each scalar with the text it was written as. Readers of YAML or JSON build it,
// overrides change it, the codec (decode.h) turns it into a TrainingJob.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pushpull {

// A value; copying is deep. Thread-compatible.
struct Tree {
  enum class Kind { kNull, kBool, kInteger, kNumber, kString, kList, kObject };
  struct Field;

  Kind kind = Kind::kNull;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;          // finite; for numbers that are not 64-bit integers
  std::string text;           // the value of a string; any other scalar as it was written
  std::vector<Tree> items;    // of a list
  std::vector<Field> fields;  // of an object, in the order they were written, keys unique
};

struct Tree::Field {
  std::string key;
  Tree value;
};

// A value of this kind; a list or an object is empty.
Tree MakeTree(Tree::Kind kind, absl::string_view text = "");

// The value of `key`; null if the tree is not an object or has no such field.
const Tree* FindField(const Tree& tree, absl::string_view key);

// How many bytes of `path`, written like the fields of problems (problems.h), lead to a value: all
// of them if the field is set, otherwise those of the innermost object or list around it.
size_t BytesSet(const Tree& tree, absl::string_view path);

// The tree as an error message names it: `"two"`, `1.5`, `yes`, `a list`.
std::string Describe(const Tree& tree);

// The tree as JSON on one line, the fields of each object sorted by key.
std::string ToJson(const Tree& tree);

}  // namespace pushpull
