// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd/manifest.h"

#include <cerrno>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/file_descriptor.h"
#include "runtime/base/status_macros.h"

namespace pushpull {

namespace {

absl::StatusOr<std::string> ReadText(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  // An empty file fails here too, but without an error: the parser reports it.
  if (!file.is_open() || (!text && errno != 0))
    return StatusFromErrno(errno == 0 ? EIO : errno, absl::StrCat("manifest ", path));
  return text.str();
}

}  // namespace

absl::StatusOr<ParsedJob> ReadManifest(const std::string& path,
                                       const std::vector<std::string>& overrides,
                                       const std::string& runtime) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  if (runtime.empty()) return ParseManifest(text, overrides);
  PUSHPULL_ASSIGN_OR_RETURN(const std::string shared, ReadText(runtime));
  return ParseTrainingJob(text, overrides, shared);
}

absl::StatusOr<ParsedJob> LoadManifest(const std::string& path,
                                       const std::vector<std::string>& overrides,
                                       const std::string& runtime) {
  PUSHPULL_ASSIGN_OR_RETURN(ParsedJob parsed, ReadManifest(path, overrides, runtime));
  if (parsed.is_runtime) parsed.problems = {{"kind", "must be TrainingJob, is TrainingRuntime"}};
  if (parsed.problems.empty() && !parsed.job.spec.runtime_ref.empty()) {
    parsed.problems = {{"spec.runtimeRef",
                        "names an object of a cluster; without one, `pushpull run --runtime FILE` "
                        "takes its manifest"}};
  }
  if (parsed.problems.empty()) return parsed;
  std::string lines;
  for (const ManifestProblem& problem : parsed.problems) {
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", path, ": ", ToString(problem));
  }
  return absl::InvalidArgumentError(lines);
}

absl::StatusOr<TrainingJob> LoadManifest(const std::string& path,
                                         const std::vector<std::string>& overrides) {
  PUSHPULL_ASSIGN_OR_RETURN(ParsedJob parsed, LoadManifest(path, overrides, ""));
  return std::move(parsed.job);
}

std::string DescribeIgnored(const std::string& path, const ParsedJob& parsed) {
  return parsed.ignored.empty()
             ? ""
             : absl::StrCat(path,
                            ": uses ",
                            parsed.is_runtime ? "TrainingRuntime " : "TrainingJob ",
                            parsed.job.metadata.name,
                            ", ignores ",
                            absl::StrJoin(parsed.ignored, ", "));
}

}  // namespace pushpull
