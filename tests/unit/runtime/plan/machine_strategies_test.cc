// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/machine_strategies.h"

#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/plan/topologies.h"

namespace pushpull {
namespace {

constexpr double kBandwidth = 16e9;

Strategy Timed(const Schedule& schedule, const MachineNetwork& network) {
  return Evaluate(schedule, network.cables());
}

TEST(MachineSchedulesTest, FollowTheirFormulasForAnyNumberOfGpus) {
  for (const int gpus : {2, 3, 4, 7, 8, 16}) {
    const MachineNetwork network(PcieMachine(gpus));
    const double n = gpus;
    const double once = kGradient / kBandwidth;

    EXPECT_NEAR(Timed(RootSchedule(network, kGradient), network).seconds, 2 * (n - 1) * once, 1e-9);
    EXPECT_NEAR(Timed(HostSchedule(network, kGradient), network).seconds, 2 * n * once, 1e-9);
    EXPECT_NEAR(
        Timed(SplitSchedule(network, kGradient), network).seconds, 2 * (n - 1) / n * once, 1e-9);
    EXPECT_NEAR(
        Timed(RingSchedule(network, kGradient), network).seconds, 2 * (n - 1) / n * once, 1e-9);
    EXPECT_LE(Timed(TreeSchedule(network, kGradient), network).seconds, 2 * once + 1e-9);
  }
}

TEST(MachineSchedulesTest, NoBandwidthBoundIsBroken) {
  // Patarasuk and Yuan: each member sends and receives at least 2 (n - 1) / n S.
  for (const int gpus : {2, 3, 4, 8}) {
    const MachineNetwork network(PcieMachine(gpus));
    for (const Schedule& schedule : MachineSchedules(network, kGradient)) {
      if (schedule.name == "host" || schedule.name == "root") continue;  // these sum elsewhere
      EXPECT_GE(Timed(schedule, network).streamed_seconds,
                2.0 * (gpus - 1) / gpus * kGradient / kBandwidth - 1e-9)
          << schedule.name << " of " << gpus;
    }
  }
}

TEST(MachineSchedulesTest, ARootSendsBackWhileItReceives) {
  const MachineNetwork network(PcieMachine(4));

  EXPECT_NEAR(Timed(RootSchedule(network, kGradient), network).streamed_seconds, 0.030, 1e-9);
}

TEST(MachineSchedulesTest, AnUplinkIsSharedByItsGpus) {
  Machine machine = PcieMachine(4);
  machine.pcie->switches = {PcieSwitch{{0, 1}, 16e9, 0}, PcieSwitch{{2, 3}, 16e9, 1}};
  const MachineNetwork network(machine);

  // Each switch carries two gradients to the host.
  EXPECT_NEAR(Timed(HostSchedule(network, kGradient), network).seconds, 2 * 2 * 0.010, 1e-9);
  // A ring crosses each uplink once in each direction.
  EXPECT_NEAR(Timed(RingSchedule(network, kGradient), network).seconds, 0.015, 1e-9);
  // Two GPUs send their quarters to two GPUs of the other switch: a whole gradient.
  EXPECT_NEAR(Timed(SplitSchedule(network, kGradient), network).seconds, 2 * 0.010, 1e-9);
}

TEST(MachineSchedulesTest, TheLinkBetweenNumaNodesCanBeTheLimit) {
  Machine machine = PcieMachine(4);
  machine.pcie->switches = {PcieSwitch{{0, 1}, 16e9, 0}, PcieSwitch{{2, 3}, 16e9, 1}};
  machine.pcie->between_numa_nodes = 8e9;
  const MachineNetwork network(machine);

  const Strategy split = Timed(SplitSchedule(network, kGradient), network);

  EXPECT_NEAR(split.seconds, 2 * 0.020, 1e-9);
  EXPECT_EQ(split.links.front().kind, LinkKind::kNuma);
  // Two gradients of the other node reach the sum across it.
  EXPECT_NEAR(Timed(HostSchedule(network, kGradient), network).seconds, 2 * 0.040, 1e-9);
}

TEST(MachineSchedulesTest, NvLinksAreUsedWhereTwoGpusHaveOne) {
  Machine machine = PcieMachine(4);
  machine.nvlink = NvLinks{.bandwidth = 20e9, .pairs = {{0, 1, 1}}};
  const MachineNetwork network(machine);

  Phase phase = network.NewPhase();
  network.Send(0, 1, 1e6, phase);

  EXPECT_NEAR(Timed(RingSchedule(network, kGradient), network).seconds, 0.015, 1e-9);
  EXPECT_EQ(std::accumulate(phase.bytes.begin(), phase.bytes.end(), 0.0), 1e6);
  EXPECT_EQ(network.NumLinks(1, 0), 1);
  EXPECT_EQ(network.NumLinks(0, 2), 0);
}

TEST(MachineSchedulesTest, RingsBothWaysTakeHalfTheTime) {
  const MachineNetwork network(CubeMesh());
  double one_way = 0;
  double both_ways = 0;
  for (const Schedule& schedule : MachineSchedules(network, kGradient)) {
    if (schedule.name == "two_rings") one_way = Timed(schedule, network).seconds;
    if (schedule.name == "rings_both_ways") both_ways = Timed(schedule, network).seconds;
  }

  EXPECT_GT(both_ways, 0);
  EXPECT_NEAR(both_ways, one_way / 2, 1e-9);
}

TEST(MachineSchedulesTest, TwoGpusHaveOneRing) {
  Machine machine = PcieMachine(2);
  machine.nvlink = NvLinks{.bandwidth = 20e9, .pairs = {{0, 1, 2}}};

  const MachineNetwork network(machine);

  EXPECT_NEAR(Timed(RingSchedule(network, kGradient), network).seconds, kGradient / 40e9, 1e-9);
  for (const Schedule& schedule : MachineSchedules(network, kGradient))
    EXPECT_NE(schedule.name, "rings_both_ways");
}

TEST(MachineSchedulesTest, WithLatencyATreeBeatsARingForFewBytes) {
  Machine machine = PcieMachine(8);
  machine.pcie->latency = 5e-6;
  const MachineNetwork network(machine);

  EXPECT_NEAR(Timed(RingSchedule(network, 1), network).seconds, 2 * 7 * 5e-6, 1e-8);
  EXPECT_NEAR(Timed(SplitSchedule(network, 1), network).seconds, 2 * 5e-6, 1e-8);
  EXPECT_LT(Timed(TreeSchedule(network, 4096), network).seconds,
            Timed(RingSchedule(network, 4096), network).seconds);
  EXPECT_GT(Timed(TreeSchedule(network, kGradient), network).seconds,
            Timed(RingSchedule(network, kGradient), network).seconds);
}

}  // namespace
}  // namespace pushpull
