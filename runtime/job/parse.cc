// SPDX-License-Identifier: Apache-2.0
//
// Text -> tree -> overrides -> structs -> rules; see parse.h.
#include "runtime/job/parse.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/job/decode.h"
#include "runtime/job/override.h"
#include "runtime/job/training_runtime.h"
#include "runtime/job/tree.h"
#include "runtime/job/validate.h"
#include "runtime/job/yaml_reader.h"

namespace pushpull {
namespace {

std::optional<Tree> ReadWithOverrides(absl::string_view text,
                                      std::span<const std::string> overrides,
                                      Problems& problems) {
  std::optional<Tree> tree = ReadYaml(text, problems);
  if (!tree.has_value()) return tree;
  for (const std::string& assignment : overrides) ApplyOverride(assignment, *tree, problems);
  return tree;
}

TrainingJob JobFrom(const Tree& tree, Problems& problems) {
  TrainingJob job = DecodeTrainingJob(tree, problems);
  if (job.spec.runtime_ref.empty()) {
    CheckRules(job, problems);
  } else {
    CheckRulesBeforeMerge(job, tree, problems);
  }
  return job;
}

TrainingJob RuntimeFrom(const Tree& tree, Problems& problems) {
  TrainingJob runtime = DecodeTrainingRuntime(tree, problems);
  CheckRulesOfRuntime(runtime, tree, problems);
  return runtime;
}

// Problems of the runtime itself are reported as the runtime's, not at each field of the job.
std::optional<Tree> ReadRuntime(absl::string_view text, std::string& name, Problems& problems) {
  Problems own;
  std::optional<Tree> tree = ReadYaml(text, own);
  if (tree.has_value()) name = RuntimeFrom(*tree, own).metadata.name;
  const std::vector<ManifestProblem> found = own.Take();
  for (const ManifestProblem& problem : found)
    problems.Add("spec.runtimeRef", absl::StrCat("its runtime: ", ToString(problem)));
  if (!found.empty()) return std::nullopt;
  const Tree* spec = FindField(*tree, "spec");
  return spec == nullptr ? MakeTree(Tree::Kind::kObject) : *spec;
}

}  // namespace

ParsedJob ParseTrainingJob(absl::string_view text, std::span<const std::string> overrides) {
  Problems problems;
  ParsedJob parsed;
  const std::optional<Tree> tree = ReadWithOverrides(text, overrides, problems);
  if (tree.has_value()) parsed.job = JobFrom(*tree, problems);
  parsed.problems = problems.Take();
  return parsed;
}

ParsedJob ParseTrainingJob(absl::string_view text,
                           std::span<const std::string> overrides,
                           absl::string_view runtime) {
  Problems problems;
  ParsedJob parsed;
  const std::optional<Tree> tree = ReadWithOverrides(text, overrides, problems);
  if (tree.has_value()) parsed.job = JobFrom(*tree, problems);
  const std::string wanted = parsed.job.spec.runtime_ref;
  if (problems.empty() && wanted.empty())
    problems.Add("spec.runtimeRef", "must be set: a runtime is given");
  std::string name;
  std::optional<Tree> runtime_spec;
  if (problems.empty()) runtime_spec = ReadRuntime(runtime, name, problems);
  if (runtime_spec.has_value() && name != wanted) {
    problems.Add("spec.runtimeRef.name",
                 absl::StrCat("is ", Quoted(wanted), ", the runtime given is ", Quoted(name)));
  }
  if (problems.empty()) {
    const Tree merged = MergeRuntime(*runtime_spec, *tree);
    parsed.merged = ToJson(merged);
    parsed.job = JobFrom(merged, problems);
    parsed.problems = problems.Take();
    NameRuntime(name, *runtime_spec, *tree, parsed.problems);
    return parsed;
  }
  parsed.problems = problems.Take();
  return parsed;
}

ParsedJob ParseManifest(absl::string_view text, std::span<const std::string> overrides) {
  Problems problems;
  const std::optional<Tree> tree = ReadWithOverrides(text, overrides, problems);
  const Tree* kind = tree.has_value() ? FindField(*tree, "kind") : nullptr;
  if (kind == nullptr || kind->text != kTrainingRuntimeKind)
    return ParseTrainingJob(text, overrides);
  ParsedJob parsed{.job = RuntimeFrom(*tree, problems), .problems = {}, .is_runtime = true};
  parsed.problems = problems.Take();
  return parsed;
}

}  // namespace pushpull
