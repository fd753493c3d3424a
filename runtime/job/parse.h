// SPDX-License-Identifier: Apache-2.0
//
// The front door of the manifest: text and overrides in, a TrainingJob or everything that is wrong
// with it out. Works without a cluster and says what the API server would say.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/job/problems.h"
#include "runtime/job/training_job.h"

namespace pushpull {

struct ParsedJob {
  TrainingJob job;  // of use only when there are no problems
  std::vector<ManifestProblem> problems;
};

// Reads a manifest in YAML or JSON.
//
// text:      any bytes; at most kManifestBytesMax are read.
// overrides: `PATH=VALUE` each, applied in order before anything is checked, see override.h.
//
// Finds all problems, not only the first. Throws nothing, blocks on nothing, keeps nothing.
ParsedJob ParseTrainingJob(absl::string_view text, std::span<const std::string> overrides);

}  // namespace pushpull
