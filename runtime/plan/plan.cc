// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/plan.h"

#include "runtime/plan/planner.h"

namespace pushpull {

Plan MakePlan(const Topology& topology, const PlanRequest& request) {
  const Planner planner(topology.machine, request.bytes);
  Plan plan{
      .topology = topology, .bytes = request.bytes, .strategies = planner.Strategies(topology)};
  plan.drawing = planner.Draw(topology, plan.strategies.front());
  if (request.compute_seconds > 0) {
    plan.break_even =
        FindBreakEven(topology, request.bytes, request.compute_seconds, request.batch);
  }
  plan.recommendation = Recommend(topology, plan.strategies);
  return plan;
}

}  // namespace pushpull
