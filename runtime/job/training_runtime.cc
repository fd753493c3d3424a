// SPDX-License-Identifier: Apache-2.0
//
// See training_runtime.h.
#include "runtime/job/training_runtime.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

constexpr char kSpec[] = "spec";
constexpr char kReference[] = "runtimeRef";
constexpr char kTemplate[] = "template";  // of a role's pods

enum class Null { kSaysNothing, kReplaces };

Tree& FindOrAdd(Tree& object, const std::string& key) {
  const auto found = std::ranges::find(object.fields, key, &Tree::Field::key);
  if (found != object.fields.end()) return found->value;
  return object.fields.emplace_back(Tree::Field{.key = key, .value = {}}).value;
}

// Recursive: only for trees whose reader has bounded their depth.
void LayOver(const Tree& over, Tree& base, Null null) {
  if (over.kind == Tree::Kind::kNull && null == Null::kSaysNothing) return;
  if (over.kind != Tree::Kind::kObject || base.kind != Tree::Kind::kObject) {
    base = over;
    return;
  }
  for (const Tree::Field& field : over.fields) {
    const bool is_template = null == Null::kReplaces || field.key == kTemplate;
    LayOver(field.value,
            FindOrAdd(base, field.key),
            is_template ? Null::kReplaces : Null::kSaysNothing);
  }
}

}  // namespace

Tree MergeRuntime(const Tree& runtime_spec, const Tree& job) {
  Tree merged = job;
  const Tree* spec = FindField(job, kSpec);
  if (spec == nullptr) return merged;
  Tree& whole = FindOrAdd(merged, kSpec);
  if (spec->kind == Tree::Kind::kObject && runtime_spec.kind == Tree::Kind::kObject) {
    whole = runtime_spec;
    LayOver(*spec, whole, Null::kSaysNothing);
  }
  std::erase_if(whole.fields, [](const Tree::Field& field) { return field.key == kReference; });
  return merged;
}

void NameRuntime(const std::string& runtime,
                 const Tree& runtime_spec,
                 const Tree& job,
                 std::vector<ManifestProblem>& problems) {
  Tree shared = MakeTree(Tree::Kind::kObject);
  shared.fields.push_back({.key = kSpec, .value = runtime_spec});
  for (ManifestProblem& problem : problems) {
    if (BytesSet(shared, problem.field) > BytesSet(job, problem.field))
      absl::StrAppend(&problem.text, " (from the TrainingRuntime ", runtime, ")");
  }
}

}  // namespace pushpull
