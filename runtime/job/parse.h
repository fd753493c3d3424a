// SPDX-License-Identifier: Apache-2.0
//
// The entry point: takes text and overrides, returns a TrainingJob or all problems of the manifest.
// Works without a cluster and reports what the API server would.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/job/problems.h"
#include "runtime/job/training_job.h"

namespace pushpull {

struct ParsedJob {
  TrainingJob job;  // valid only without problems
  std::vector<ManifestProblem> problems = {};
  // The manifest is that of a TrainingRuntime, and `job` has what it sets for jobs.
  bool is_runtime = false;
  // For a job that was merged with its runtime: the merged manifest, as JSON. Otherwise empty.
  std::string merged = {};
  // The text's other documents, which have no effect (documents.h).
  std::vector<std::string> ignored = {};
};

// Reads a manifest in YAML or JSON; of a text with several documents, the one TrainingJob.
//
// text:      any bytes; at most kManifestBytesMax are read.
// overrides: `PATH=VALUE` each, applied in order before anything is checked, see override.h.
//
// Finds all problems, not only the first. Does not throw and does not block.
ParsedJob ParseTrainingJob(absl::string_view text, std::span<const std::string> overrides);

// The same for a manifest that names a runtime: it is merged over `runtime`, that runtime's
// manifest. Reports the problems of both; naming no runtime, or another one, is a problem.
ParsedJob ParseTrainingJob(absl::string_view text,
                           std::span<const std::string> overrides,
                           absl::string_view runtime);

// Reads either kind, by the field `kind`; anything else is judged as a TrainingJob.
ParsedJob ParseManifest(absl::string_view text, std::span<const std::string> overrides);

}  // namespace pushpull
