// SPDX-License-Identifier: Apache-2.0
//
// Reads a checkpoint from end to end and reports everything that is wrong with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/checkpoint/file_system.h"

namespace pushpull {

// Problems beyond this many are only counted.
inline constexpr size_t kVerifyProblemsMax = 100;

struct VerifyProblem {
  std::string file;                // its path
  std::optional<uint64_t> offset;  // bytes from the file's start, if known
  std::string text;                // with file and offset
};

struct VerifyReport {
  Step step;
  uint64_t num_files = 0;
  uint64_t num_records = 0;
  uint64_t bytes = 0;                   // read
  std::vector<VerifyProblem> problems;  // empty: every checksum is right
  uint64_t num_problems = 0;            // all of them
};

// Checks the manifest, the files and every record of the checkpoint in `folder`, that of a step;
// checksums cover every byte. Blocks for as long as reading all of it takes; needs memory for one
// record.
//
// kNotFound       there is no manifest. kUnimplemented: a newer format.
// kResourceExhausted: no memory for a record. Other errors: `folder` cannot be read.
// Damage, however bad, is not an error, but a problem in the report.
absl::StatusOr<VerifyReport> VerifyCheckpoint(FileSystem& file_system, const std::string& folder);

}  // namespace pushpull
