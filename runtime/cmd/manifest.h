// SPDX-License-Identifier: Apache-2.0
//
// Reads a manifest from a file and --set flags, with every problem on a line of its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/job/parse.h"
#include "runtime/job/training_job.h"

namespace pushpull {

// The job or TrainingRuntime in the file, or everything that is wrong with it. `runtime` is the
// file with the runtime that the job names, over which it is merged; empty: the file is checked
// alone.
//
// kNotFound, kUnavailable: a file cannot be read; the text names it.
absl::StatusOr<ParsedJob> ReadManifest(const std::string& path,
                                       const std::vector<std::string>& overrides,
                                       const std::string& runtime);

// The same for callers that need a job. kNotFound, kUnavailable: a file cannot be read.
// kInvalidArgument: the text has a line for each problem, `FILE: field.path: what is wrong`.
absl::StatusOr<ParsedJob> LoadManifest(const std::string& path,
                                       const std::vector<std::string>& overrides,
                                       const std::string& runtime);

// The same, without a runtime.
absl::StatusOr<TrainingJob> LoadManifest(const std::string& path,
                                         const std::vector<std::string>& overrides);

// "FILE: uses TrainingJob mnist, ignores ConfigMap settings"; empty: the file has nothing else.
std::string DescribeIgnored(const std::string& path, const ParsedJob& parsed);

}  // namespace pushpull
