// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/cluster_strategies.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/plan/topologies.h"

namespace pushpull {
namespace {

constexpr double kOnce = kGradient / 12.5e9;  // one gradient over a NIC

std::vector<std::string> NamesOf(const Topology& topology) {
  std::vector<std::string> names;
  for (const Strategy& strategy : StrategiesOf(topology)) names.push_back(strategy.schedule.name);
  return names;
}

TEST(ClusterStrategiesTest, ServersTakeTimeInProportionToMOverN) {
  for (const int workers : {4, 8, 32}) {
    for (const int servers : {1, 2, 4}) {
      const Strategy strategy = Named("servers", CpuCluster(workers, servers));
      EXPECT_NEAR(strategy.seconds, 2.0 * workers / servers * kOnce, 1e-9)
          << workers << " workers, " << servers << " servers";
      EXPECT_NEAR(strategy.streamed_seconds, 1.0 * workers / servers * kOnce, 1e-9);
    }
  }
}

TEST(ClusterStrategiesTest, MoreServersThanWorkersBringNothing) {
  const Strategy even = Named("servers", CpuCluster(4, 4));
  const Strategy more = Named("servers", CpuCluster(4, 8));

  EXPECT_NEAR(even.seconds, more.seconds, 1e-9);
  EXPECT_EQ(more.links.front().kind, LinkKind::kWorkerNic);
}

TEST(ClusterStrategiesTest, AServersOwnBandwidthCounts) {
  Topology topology = CpuCluster(8, 2);
  topology.cluster.server_bandwidth = 50e9;

  EXPECT_NEAR(Named("servers", topology).seconds, 2 * kOnce, 1e-9);
}

TEST(ClusterStrategiesTest, HierarchyPushesOneGradientOfEachMachine) {
  Topology topology = CpuCluster(8, 2);
  topology.machine = PcieMachine(4);
  topology.machine.nics = {{.bandwidth = 12.5e9}};

  // Four times the bytes from each machine.
  EXPECT_NEAR(Named("servers", topology).seconds, 2 * 4 * 8.0 / 2 * kOnce, 1e-9);
  // The machine's own sum, split over its GPUs, and m / n.
  EXPECT_NEAR(Named("hierarchical", topology).seconds, 0.015 + 2 * 8.0 / 2 * kOnce, 1e-9);
  EXPECT_EQ(Named("hierarchical", topology).schedule.runner, Runner::kProgram);
  EXPECT_EQ(Named("servers", topology).schedule.runner, Runner::kServers);
}

TEST(ClusterStrategiesTest, ColocatedServersSendWhatARingSends) {
  for (const int machines : {2, 3, 16}) {
    const Topology topology = CpuCluster(machines, 0);
    const double expected = 2.0 * (machines - 1) / machines * kOnce;
    EXPECT_NEAR(Named("colocated", topology).seconds, expected, 1e-9);
    EXPECT_NEAR(Named("machine_ring", topology).seconds, expected, 1e-9);
    EXPECT_NEAR(Named("machine_root", topology).seconds, 2.0 * (machines - 1) * kOnce, 1e-9);
    EXPECT_LE(Named("machine_tree", topology).seconds, 2 * kOnce + 1e-9);
  }
}

TEST(ClusterStrategiesTest, ServersOfTheirOwnBeatARingWhereSumsStream) {
  const Topology topology = CpuCluster(8, 8);

  EXPECT_LT(Named("servers", topology).streamed_seconds,
            Named("machine_ring", topology).streamed_seconds);
  EXPECT_GT(Named("servers", topology).seconds, Named("machine_ring", topology).seconds);
}

TEST(ClusterStrategiesTest, ARacksUplinkCarriesWhatLeavesIt) {
  Topology topology = CpuCluster(8, 4);
  topology.cluster.racks = {Rack{.workers = 4, .servers = 4, .uplink = 12.5e9},
                            Rack{.workers = 4, .servers = 0, .uplink = 12.5e9}};

  const Strategy servers = Named("servers", topology);

  // All four gradients of the second rack cross to the first, where all servers are.
  EXPECT_EQ(servers.links.front().kind, LinkKind::kRackUplink);
  EXPECT_NEAR(servers.seconds, 2 * 4 * kOnce, 1e-9);
  // A ring crosses once.
  EXPECT_NEAR(Named("machine_ring", topology).seconds, 2.0 * 7 / 8 * kOnce, 1e-9);
  // Each of 4 machines sends the eighth parts of 4 others across: 2 gradients.
  EXPECT_NEAR(Named("colocated", topology).seconds, 2 * 2 * kOnce, 1e-9);
}

TEST(ClusterStrategiesTest, ARingInEachRackCrossesTheUplinkWithLess) {
  Topology topology = CpuCluster(8, 0);
  topology.cluster.racks = {Rack{.workers = 4, .uplink = 3.125e9},
                            Rack{.workers = 4, .uplink = 3.125e9}};

  const Strategy racks = Named("rack_ring", topology);

  // Three quarters there and back inside, and half a gradient there and back over a quarter of a
  // NIC.
  EXPECT_NEAR(racks.seconds, 2 * (3.0 / 4 + 1.0 / 2 * 4) * kOnce, 1e-9);
  EXPECT_NEAR(racks.streamed_seconds, 2 * 1.0 / 2 * 4 * kOnce, 1e-9);
  EXPECT_NEAR(Named("machine_ring", topology).seconds, 2 * 7.0 / 8 * 4 * kOnce, 1e-9);
  // A machine sends what it sends in one ring over all.
  EXPECT_NEAR(racks.links.back().bytes, 2 * 7.0 / 8 * kGradient, 1);
  EXPECT_EQ(racks.schedule.runner, Runner::kWorkers);
}

TEST(ClusterStrategiesTest, UnequalRacksHaveNoRingEach) {
  Topology topology = CpuCluster(7, 0);
  topology.cluster.racks = {Rack{.workers = 4, .uplink = 100e9},
                            Rack{.workers = 3, .uplink = 100e9}};

  EXPECT_THAT(NamesOf(topology), testing::Not(testing::Contains("rack_ring")));
}

TEST(ClusterStrategiesTest, JobsHaveRingsOnCpusOfUpTo64Workers) {
  Topology with_gpus = CpuCluster(8, 2);
  with_gpus.machine = PcieMachine(4);
  with_gpus.machine.nics = {{.bandwidth = 12.5e9}};

  EXPECT_EQ(Named("machine_ring", CpuCluster(64, 0)).schedule.runner, Runner::kWorkers);
  EXPECT_EQ(Named("machine_ring", CpuCluster(65, 0)).schedule.runner, Runner::kPlanned);
  EXPECT_EQ(Named("machine_ring", with_gpus).schedule.runner, Runner::kPlanned);
}

TEST(ClusterStrategiesTest, ARackOfServersAloneHasNoWorkersLink) {
  Topology topology = CpuCluster(4, 4);
  topology.cluster.racks = {Rack{.workers = 4, .servers = 0, .uplink = 100e9},
                            Rack{.workers = 0, .servers = 4, .uplink = 100e9}};

  EXPECT_NEAR(Named("servers", topology).seconds, 2 * kOnce, 1e-9);
  EXPECT_NEAR(Named("machine_tree", topology).seconds, 2 * kOnce, 1e-9);
  EXPECT_NEAR(Named("machine_root", topology).seconds, 2 * 3 * kOnce, 1e-9);
}

TEST(ClusterStrategiesTest, OneGpuReachesTheNicOverPcie) {
  Topology topology = CpuCluster(2, 2);
  topology.machine = PcieMachine(1);
  topology.machine.nics = {{.bandwidth = 100e9}};

  EXPECT_NEAR(Named("servers", topology).seconds, 2 * kGradient / 16e9, 1e-9);
  EXPECT_NEAR(Named("colocated", topology).seconds, 2 * kGradient / 16e9, 1e-9);
}

TEST(ClusterStrategiesTest, OneMachineWithServersHasItsOwnWaysToo) {
  Topology topology = CpuCluster(1, 2);
  topology.machine = PcieMachine(2);
  topology.machine.nics = {{.bandwidth = 12.5e9}};

  EXPECT_THAT(NamesOf(topology),
              ::testing::UnorderedElementsAre(
                  "servers", "hierarchical", "root", "host", "split", "ring", "tree"));
}

TEST(ClusterStrategiesTest, LatencyCountsForEachHop) {
  Topology topology = CpuCluster(8, 8);
  topology.cluster.latency = 20e-6;

  EXPECT_NEAR(Named("servers", topology, 1).seconds, 2 * 20e-6, 1e-8);
  EXPECT_NEAR(Named("machine_ring", topology, 1).seconds, 2 * 7 * 20e-6, 1e-8);
  EXPECT_NEAR(Named("machine_tree", topology, 1).seconds, 2 * 3 * 20e-6, 1e-8);
}

}  // namespace
}  // namespace pushpull
