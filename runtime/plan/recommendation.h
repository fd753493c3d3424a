// SPDX-License-Identifier: Apache-2.0
//
// The fields of a manifest that follow from a plan.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/strategy.h"
#include "runtime/plan/topology.h"

namespace pushpull {

struct ManifestField {
  std::string path;   // "spec.workers.replicas"
  std::string value;  // as in YAML
};

struct Recommendation {
  std::string strategy;  // its name
  std::vector<ManifestField> fields;
  std::vector<std::string> notes;  // what no field expresses
};

// For the best strategy that runs today. `strategies` are from Planner; at least one must run
// today.
Recommendation Recommend(const Topology& topology, const std::vector<Strategy>& strategies);

// The fields as a part of a manifest, as lines without line ends.
std::vector<std::string> ToManifest(const std::vector<ManifestField>& fields);

}  // namespace pushpull
