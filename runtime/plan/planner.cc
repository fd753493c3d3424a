// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/planner.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "runtime/plan/cluster_strategies.h"
#include "runtime/plan/machine_strategies.h"

namespace pushpull {

Planner::Planner(const Machine& machine, double bytes) : machine_(machine), bytes_(bytes) {
  if (machine.gpus > 1) in_machine_ = MachineSchedules(machine_, bytes);
}

std::vector<Strategy> Planner::Strategies(const Topology& topology) const {
  const ClusterNetwork network = NetworkOf(topology, machine_);
  std::vector<Strategy> strategies;
  if (NumWorkerMachines(topology) > 1 || NumServerMachines(topology) > 0)
    strategies = ClusterStrategies(topology, network, machine_, in_machine_, bytes_);
  if (NumWorkerMachines(topology) == 1) {
    for (Schedule schedule : in_machine_) {
      for (Phase& phase : schedule.phases) phase.bytes.resize(2 * network.cables.size(), 0.0);
      strategies.push_back(Evaluate(std::move(schedule), network.cables));
    }
  }
  std::ranges::stable_sort(strategies, [](const Strategy& left, const Strategy& right) {
    return std::tie(left.streamed_seconds, left.seconds) <
           std::tie(right.streamed_seconds, right.seconds);
  });
  return strategies;
}

const Strategy* Planner::BestOfToday(const std::vector<Strategy>& strategies) {
  const auto found = std::ranges::find_if(strategies, [](const Strategy& strategy) {
    return strategy.schedule.runner != Runner::kPlanned;
  });
  return found == strategies.end() ? nullptr : &*found;
}

std::vector<std::string> Planner::Draw(const Topology& topology, const Strategy& strategy) const {
  const ClusterNetwork network = NetworkOf(topology, machine_);
  return DrawTraffic(strategy.schedule, network.cables, network.machine_cables);
}

}  // namespace pushpull
