// SPDX-License-Identifier: Apache-2.0
//
// Paths into a tree; see override.h.
#include "runtime/job/override.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"

#include "runtime/job/yaml_reader.h"

namespace pushpull {

namespace {

using PathStep = std::variant<std::string, size_t>;  // key of an object, position in a list

// The positions in "[0][12]"; nothing if the text has another form.
std::optional<std::vector<size_t>> ParsePositions(absl::string_view text) {
  std::vector<size_t> positions;
  while (!text.empty()) {
    const size_t close = text.find(']');
    size_t position = 0;
    if (text[0] != '[' || close == absl::string_view::npos ||
        !absl::SimpleAtoi(text.substr(1, close - 1), &position)) {
      return std::nullopt;
    }
    positions.push_back(position);
    text.remove_prefix(close + 1);
  }
  return positions;
}

// Nothing if `path` is not a path.
std::optional<std::vector<PathStep>> ParsePath(absl::string_view path) {
  std::vector<PathStep> steps;
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    const absl::string_view key = part.substr(0, part.find('['));
    const std::optional<std::vector<size_t>> positions = ParsePositions(part.substr(key.size()));
    if (key.empty() || !positions.has_value()) return std::nullopt;
    steps.emplace_back(std::string(key));
    steps.insert(steps.end(), positions->begin(), positions->end());
  }
  if (steps.size() > kManifestDepthMax) return std::nullopt;
  return steps;
}

// The value of `key` in `parent`, created if missing; null if the parent cannot have one.
Tree* FindOrCreate(Tree& parent, const std::string& key) {
  if (parent.kind == Tree::Kind::kNull) parent = MakeTree(Tree::Kind::kObject);
  if (parent.kind != Tree::Kind::kObject) return nullptr;
  for (Tree::Field& field : parent.fields) {
    if (field.key == key) return &field.value;
  }
  return &parent.fields.emplace_back(Tree::Field{.key = key, .value = Tree{}}).value;
}

// The item at `position` of `parent`, created if it is the next one; null if there cannot be one.
Tree* FindOrCreate(Tree& parent, size_t position) {
  if (parent.kind == Tree::Kind::kNull) parent = MakeTree(Tree::Kind::kList);
  if (parent.kind != Tree::Kind::kList || position > parent.items.size()) return nullptr;
  if (position == parent.items.size()) parent.items.emplace_back();
  return &parent.items[position];
}

std::string CannotStep(const Tree& parent, const PathStep& step) {
  if (std::holds_alternative<std::string>(step)) {
    return absl::StrCat(
        "cannot be set: ", Describe(parent), " has no field ", Quoted(std::get<std::string>(step)));
  }
  if (parent.kind == Tree::Kind::kList) {
    return absl::Substitute("cannot be set: the list has $0 items; [$0] would append one",
                            parent.items.size());
  }
  return absl::StrCat(
      "cannot be set: ", Describe(parent), " has no position ", std::get<size_t>(step));
}

// The name that the decoder would give the field.
std::string NameOfPath(const std::vector<PathStep>& steps) {
  std::string path;
  for (const PathStep& step : steps) {
    path = std::visit([&path](const auto& key) { return JoinPath(path, key); }, step);
  }
  return path;
}

}  // namespace

void ApplyOverride(absl::string_view assignment, Tree& root, Problems& problems) {
  const size_t equals = assignment.find('=');
  if (equals == absl::string_view::npos) {
    problems.Add("--set", absl::StrCat("must be PATH=VALUE, is ", Quoted(assignment)));
    return;
  }
  const absl::string_view path = assignment.substr(0, equals);
  const std::optional<std::vector<PathStep>> steps = ParsePath(path);
  if (!steps.has_value()) {
    problems.Add(
        "--set",
        absl::StrCat("must name a field such as spec.restart.rules[0].action, is ", Quoted(path)));
    return;
  }
  const std::string field = NameOfPath(*steps);
  Problems value_problems;
  std::optional<Tree> value = ReadYaml(assignment.substr(equals + 1), value_problems);
  for (const ManifestProblem& problem : value_problems.Take()) {
    problems.Add(field, absl::StrCat("value of --set: ", ToString(problem)));
  }
  if (!value.has_value()) return;

  Tree* at = &root;
  for (const PathStep& step : *steps) {
    Tree& parent = *at;
    at = std::visit([&parent](const auto& key) { return FindOrCreate(parent, key); }, step);
    if (at == nullptr) {
      problems.Add(field, CannotStep(parent, step));
      return;
    }
  }
  *at = *std::move(value);
}

}  // namespace pushpull
