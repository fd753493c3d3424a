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

// For topologies with this machine, however many of them there are. Thread-compatible.
class Planner {
 public:
  Planner(const Machine& machine, double bytes);

  // Those that apply to `topology`, the least streamed_seconds first, then the least seconds.
  // On one machine they are those of its GPUs, and of servers where it has some.
  std::vector<Strategy> Strategies(const Topology& topology) const;
  // The first of them that runs today; null: none.
  static const Strategy* BestOfToday(const std::vector<Strategy>& strategies);
  std::vector<std::string> Draw(const Topology& topology, const Strategy& strategy) const;

 private:
  const MachineNetwork machine_;
  const double bytes_;
  std::vector<Schedule> in_machine_;  // of two GPUs or more
};

}  // namespace pushpull
