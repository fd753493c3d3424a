// SPDX-License-Identifier: Apache-2.0
//
// The topology file that `pushpull plan` and `pushpull run --topology` read.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "runtime/plan/topology.h"

namespace pushpull {

// Blocks on the disk. kInvalidArgument: has a line for each problem, with the path; others: the
// file cannot be read.
absl::StatusOr<Topology> LoadTopology(const std::string& path);

}  // namespace pushpull
