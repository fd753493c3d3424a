// SPDX-License-Identifier: Apache-2.0
//
// Text -> tree -> overrides -> structs -> rules; see parse.h.
#include "runtime/job/parse.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/job/decode.h"
#include "runtime/job/documents.h"
#include "runtime/job/override.h"
#include "runtime/job/training_runtime.h"
#include "runtime/job/tree.h"
#include "runtime/job/validate.h"

namespace pushpull {
namespace {

// Not constexpr: under the undefined-behaviour sanitizer GCC takes no address of an array there.
const absl::string_view kJobs[] = {kTrainingJobKind};
const absl::string_view kRuntimes[] = {kTrainingRuntimeKind};
const absl::string_view kJobsAndRuntimes[] = {kTrainingJobKind, kTrainingRuntimeKind};

std::optional<ManifestDocument> ReadWithOverrides(absl::string_view text,
                                                  std::span<const absl::string_view> kinds,
                                                  std::span<const std::string> overrides,
                                                  Problems& problems) {
  std::optional<ManifestDocument> document = TakeDocument(text, kinds, problems);
  if (!document.has_value()) return document;
  for (const std::string& assignment : overrides)
    ApplyOverride(assignment, document->tree, problems);
  return document;
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
  const std::optional<ManifestDocument> document = TakeDocument(text, kRuntimes, own);
  if (document.has_value()) name = RuntimeFrom(document->tree, own).metadata.name;
  const std::vector<ManifestProblem> found = own.Take();
  for (const ManifestProblem& problem : found)
    problems.Add("spec.runtimeRef", absl::StrCat("its runtime: ", ToString(problem)));
  if (!found.empty()) return std::nullopt;
  const Tree* spec = FindField(document->tree, "spec");
  return spec == nullptr ? MakeTree(Tree::Kind::kObject) : *spec;
}

}  // namespace

ParsedJob ParseTrainingJob(absl::string_view text, std::span<const std::string> overrides) {
  Problems problems;
  ParsedJob parsed;
  std::optional<ManifestDocument> document = ReadWithOverrides(text, kJobs, overrides, problems);
  if (document.has_value()) {
    parsed.job = JobFrom(document->tree, problems);
    parsed.ignored = std::move(document->ignored);
  }
  parsed.problems = problems.Take();
  return parsed;
}

ParsedJob ParseTrainingJob(absl::string_view text,
                           std::span<const std::string> overrides,
                           absl::string_view runtime) {
  Problems problems;
  ParsedJob parsed;
  std::optional<ManifestDocument> document = ReadWithOverrides(text, kJobs, overrides, problems);
  if (document.has_value()) {
    parsed.job = JobFrom(document->tree, problems);
    parsed.ignored = std::move(document->ignored);
  }
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
    const Tree merged = MergeRuntime(*runtime_spec, document->tree);
    parsed.merged = ToJson(merged);
    parsed.job = JobFrom(merged, problems);
    parsed.problems = problems.Take();
    NameRuntime(name, *runtime_spec, document->tree, parsed.problems);
    return parsed;
  }
  parsed.problems = problems.Take();
  return parsed;
}

ParsedJob ParseManifest(absl::string_view text, std::span<const std::string> overrides) {
  Problems problems;
  std::optional<ManifestDocument> document =
      ReadWithOverrides(text, kJobsAndRuntimes, overrides, problems);
  const Tree* kind = document.has_value() ? FindField(document->tree, "kind") : nullptr;
  if (kind == nullptr || kind->text != kTrainingRuntimeKind)
    return ParseTrainingJob(text, overrides);
  ParsedJob parsed{.job = RuntimeFrom(document->tree, problems),
                   .is_runtime = true,
                   .ignored = std::move(document->ignored)};
  parsed.problems = problems.Take();
  return parsed;
}

}  // namespace pushpull
