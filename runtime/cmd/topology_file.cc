// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd/topology_file.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/base/text_file.h"
#include "runtime/plan/parse_topology.h"

namespace pushpull {

absl::StatusOr<Topology> LoadTopology(const std::string& path) {
  PUSHPULL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  const ParsedTopology parsed = ParseTopology(text);
  if (parsed.problems.empty()) return parsed.topology;
  std::string lines;
  for (const ManifestProblem& problem : parsed.problems)
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", path, ": ", ToString(problem));
  return absl::InvalidArgumentError(lines);
}

}  // namespace pushpull
