// SPDX-License-Identifier: Apache-2.0
//
// What `pushpull plan` prints: a prediction from a topology, as values, as text and as JSON. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/break_even.h"
#include "runtime/plan/recommendation.h"
#include "runtime/plan/strategy.h"
#include "runtime/plan/topology.h"

namespace pushpull {

struct PlanRequest {
  double bytes = 0;            // of one worker's gradient, above 0
  double compute_seconds = 0;  // of one worker for `batch` samples; 0: no break-even
  int batch = 0;
};

struct Plan {
  Topology topology;
  double bytes = 0;
  std::vector<Strategy> strategies;  // best first
  std::vector<std::string> drawing;  // of the best strategy
  std::optional<BreakEven> break_even;
  Recommendation recommendation;
};

// `topology` must have no problems (parse_topology.h).
Plan MakePlan(const Topology& topology, const PlanRequest& request);

std::string ToText(const Plan& plan);
// docs/interfaces.md section 2 lists the keys.
std::string ToJson(const Plan& plan);

}  // namespace pushpull
