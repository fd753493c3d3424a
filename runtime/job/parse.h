// SPDX-License-Identifier: Apache-2.0
//
// The entry point: text and overrides in, a TrainingJob or all problems of the manifest out. Works
// without a cluster and reports what the API server would.
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
  std::vector<ManifestProblem> problems;
  // The manifest is one of a TrainingRuntime, and `job` what it says of jobs.
  bool is_runtime = false;
  // Of a job that was merged with its runtime: the manifest of what runs, as JSON. Else empty.
  std::string merged = {};
};

// Reads a manifest in YAML or JSON.
//
// text:      any bytes; at most kManifestBytesMax are read.
// overrides: `PATH=VALUE` each, applied in order before anything is checked, see override.h.
//
// Finds all problems, not only the first. Does not throw and does not block.
ParsedJob ParseTrainingJob(absl::string_view text, std::span<const std::string> overrides);

// Likewise a manifest that names a runtime, merged over the manifest `runtime` of that one; the
// problems of both. That it names none, or another one, is a problem.
ParsedJob ParseTrainingJob(absl::string_view text,
                           std::span<const std::string> overrides,
                           absl::string_view runtime);

// Either kind, by the field `kind`; what is neither is judged as a TrainingJob.
ParsedJob ParseManifest(absl::string_view text, std::span<const std::string> overrides);

}  // namespace pushpull
