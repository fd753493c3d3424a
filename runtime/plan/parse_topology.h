// SPDX-License-Identifier: Apache-2.0
//
// Reads a topology file, YAML or JSON, into a Topology: as strict as the manifest's reader, with
// the same kind of problems. docs/planning.md lists the fields.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/job/problems.h"
#include "runtime/plan/topology.h"

namespace pushpull {

struct ParsedTopology {
  Topology topology;  // valid only without problems
  std::vector<ManifestProblem> problems;
};

// Finds all problems, not only the first. Does not throw and does not block.
ParsedTopology ParseTopology(absl::string_view text);

// The topology as a file that ParseTopology can read back.
std::string ToYaml(const Topology& topology);

}  // namespace pushpull
