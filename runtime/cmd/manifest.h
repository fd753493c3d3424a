// SPDX-License-Identifier: Apache-2.0
//
// A manifest from a file and --set flags, with every problem on a line of its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/job/parse.h"
#include "runtime/job/training_job.h"

namespace pushpull {

// What the file says, or everything that is wrong with it; of a TrainingRuntime as well. `runtime`
// is the file with the one that it names, over which it is merged; empty: it is judged alone.
//
// kNotFound, kUnavailable: a file cannot be read; the text names it.
absl::StatusOr<ParsedJob> ReadManifest(const std::string& path,
                                       const std::vector<std::string>& overrides,
                                       const std::string& runtime);

// The same for who needs a job. kNotFound, kUnavailable: a file cannot be read. kInvalidArgument:
// the text has a line for each problem, `FILE: field.path: what is wrong`.
absl::StatusOr<ParsedJob> LoadManifest(const std::string& path,
                                       const std::vector<std::string>& overrides,
                                       const std::string& runtime);

// Likewise, without a runtime.
absl::StatusOr<TrainingJob> LoadManifest(const std::string& path,
                                         const std::vector<std::string>& overrides);

}  // namespace pushpull
