// SPDX-License-Identifier: Apache-2.0
//
// All strategies of a topology, best first.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/network.h"
#include "runtime/plan/strategy.h"
#include "runtime/plan/topology.h"

namespace pushpull {

// For topologies of this kind of machine, however many there are. Thread-compatible.
class Planner {
 public:
  Planner(const Machine& machine, double bytes);

  // The strategies that apply to `topology`, ordered by streamed_seconds, then by seconds. On one
  // machine these are the strategies of its GPUs, and of servers if it has some.
  std::vector<Strategy> Strategies(const Topology& topology) const;
  // The first of them that runs today; null if none does.
  static const Strategy* BestOfToday(const std::vector<Strategy>& strategies);
  std::vector<std::string> Draw(const Topology& topology, const Strategy& strategy) const;

 private:
  const MachineNetwork machine_;
  const double bytes_;
  std::vector<Schedule> in_machine_;  // of two GPUs or more
};

}  // namespace pushpull
