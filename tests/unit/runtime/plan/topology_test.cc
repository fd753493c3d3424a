// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/topology.h"

#include <gtest/gtest.h>

#include "tests/unit/runtime/plan/topologies.h"

namespace pushpull {
namespace {

TEST(PartWithTest, TakesTheFirstGpusOfOneMachine) {
  Topology topology;
  topology.machine = CubeMesh();

  const Topology part = PartWith(topology, 3);

  EXPECT_EQ(NumWorkers(part), 3);
  ASSERT_EQ(part.machine.pcie->switches.size(), 2U);
  EXPECT_EQ(part.machine.pcie->switches[1].gpus, std::vector<int>{2});
  for (const NvLinkPair& pair : part.machine.nvlink->pairs) EXPECT_LT(pair.second, 3);
}

TEST(PartWithTest, FillsRackAfterRackAndKeepsTheServers) {
  const Topology part = PartWith(Example("cluster-100gbe"), 20);

  EXPECT_EQ(part.cluster.racks[0].workers, 4);
  EXPECT_EQ(part.cluster.racks[1].workers, 1);
  EXPECT_EQ(NumServerMachines(part), 8);
  EXPECT_EQ(NumWorkers(part), 20);
}

TEST(TopologyTest, NicsOfAMachineAddUp) {
  const Machine machine{.nics = {{.bandwidth = 25e9, .count = 2}, {.bandwidth = 1e9}}};

  EXPECT_DOUBLE_EQ(NicBandwidth(machine), 51e9);
}

}  // namespace
}  // namespace pushpull
