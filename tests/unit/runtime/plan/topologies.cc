// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/runtime/plan/topologies.h"

#include <fstream>
#include <numeric>
#include <sstream>

#include "absl/strings/str_cat.h"
#include <gtest/gtest.h>

#include "runtime/plan/parse_topology.h"
#include "runtime/plan/planner.h"

namespace pushpull {

Machine PcieMachine(int gpus) {
  PcieSwitch all{.gpus = std::vector<int>(static_cast<size_t>(gpus)), .uplink = 16e9};
  std::iota(all.gpus.begin(), all.gpus.end(), 0);
  return {.gpus = gpus, .pcie = PcieLinks{.bandwidth = 16e9, .switches = {all}}};
}

Machine CubeMesh() {
  return Example("v100-8").machine;
}

Topology CpuCluster(int workers, int servers) {
  Topology topology;
  topology.machine.nics = {{.bandwidth = 12.5e9}};
  topology.cluster.racks = {Rack{.workers = workers, .servers = servers}};
  return topology;
}

Topology Example(const std::string& name) {
  std::ifstream file(absl::StrCat(PUSHPULL_TOPOLOGIES, "/", name, ".yaml"));
  std::ostringstream text;
  text << file.rdbuf();
  const ParsedTopology parsed = ParseTopology(text.str());
  for (const ManifestProblem& problem : parsed.problems) ADD_FAILURE() << ToString(problem);
  return parsed.topology;
}

std::vector<Strategy> StrategiesOf(const Topology& topology, double bytes) {
  return Planner(topology.machine, bytes).Strategies(topology);
}

Strategy Named(absl::string_view name, const Topology& topology, double bytes) {
  for (const Strategy& strategy : StrategiesOf(topology, bytes)) {
    if (strategy.schedule.name == name) return strategy;
  }
  ADD_FAILURE() << "no strategy " << name;
  return {};
}

}  // namespace pushpull
