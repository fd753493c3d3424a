// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd/manifest.h"

#include <cerrno>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/base/status_macros.h"

namespace pushpull {

absl::StatusOr<ParsedJob> ReadManifest(const std::string& path,
                                       const std::vector<std::string>& overrides) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  // An empty file fails here as well, but without an error: that is for the parser to say.
  if (!file.is_open() || (!text && errno != 0))
    return StatusFromErrno(errno == 0 ? EIO : errno, absl::StrCat("manifest ", path));
  return ParseTrainingJob(text.str(), overrides);
}

absl::StatusOr<TrainingJob> LoadManifest(const std::string& path,
                                         const std::vector<std::string>& overrides) {
  PUSHPULL_ASSIGN_OR_RETURN(ParsedJob parsed, ReadManifest(path, overrides));
  if (parsed.problems.empty()) return std::move(parsed.job);
  std::string lines;
  for (const ManifestProblem& problem : parsed.problems) {
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", path, ": ", ToString(problem));
  }
  return absl::InvalidArgumentError(lines);
}

}  // namespace pushpull
