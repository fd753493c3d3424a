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
};

// Reads a manifest in YAML or JSON.
//
// text:      any bytes; at most kManifestBytesMax are read.
// overrides: `PATH=VALUE` each, applied in order before anything is checked, see override.h.
//
// Finds all problems, not only the first. Does not throw and does not block.
ParsedJob ParseTrainingJob(absl::string_view text, std::span<const std::string> overrides);

}  // namespace pushpull
