// SPDX-License-Identifier: Apache-2.0
//
// The figures that docs/planning.md and the textbook have for the shipped examples.
#include "runtime/plan/planner.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plan/topology.h"
#include "tests/unit/runtime/plan/topologies.h"

namespace pushpull {
namespace {

constexpr double kExact = 1e-9;

TEST(PlannerTest, FourGpusOnPcieAreAsInTheTextbook) {
  const Topology pcie = Example("pcie-4");

  EXPECT_NEAR(Named("root", pcie).seconds, 0.060, kExact);
  EXPECT_NEAR(Named("host", pcie).seconds, 0.080, kExact);
  EXPECT_NEAR(Named("split", pcie).seconds, 0.015, kExact);
  EXPECT_NEAR(Named("ring", pcie).seconds, 0.015, kExact);
}

TEST(PlannerTest, TwoRingsOfEightV100HaveBothFigures) {
  const Strategy rings = Named("two_rings", Example("v100-8"));

  ASSERT_EQ(rings.schedule.figures.size(), 2U);
  EXPECT_NEAR(rings.schedule.figures[0].seconds, 2 * 160e6 / (3 * 18e9), kExact);
  EXPECT_EQ(rings.schedule.figures[0].text, "2 x 160 MB / (3 x 18 GB/s)");
  EXPECT_NEAR(rings.schedule.figures[1].seconds, 2 * 160e6 / (3 * 18e9) * 7 / 8, kExact);
  EXPECT_NEAR(rings.seconds, rings.schedule.figures[1].seconds, kExact);
  EXPECT_NEAR(rings.seconds, 0.0052, 5e-5);
}

TEST(PlannerTest, ADgx2FillsAllLinksOfEachGpu) {
  EXPECT_NEAR(Named("ring", Example("dgx-2")).seconds, 2 * 15.0 / 16 * 160e6 / (6 * 25e9), kExact);
}

TEST(PlannerTest, InTheClusterServersPayAfterTheMachinesSum) {
  const Topology cluster = Example("cluster-100gbe");
  const std::vector<Strategy> strategies = StrategiesOf(cluster);

  EXPECT_EQ(strategies.front().schedule.name, "hierarchical");
  // 4 of 8 servers are in the other rack: half of 32 gradients there, and half of them from there.
  EXPECT_NEAR(Named("servers", cluster).seconds,
              2 * (32.0 / 2 * 160e6 / 50e9) + 2 * (5e-6 + 20e-6),
              kExact);
}

TEST(PlannerTest, TheBestComesFirst) {
  for (const char* name : {"pcie-4", "v100-8", "dgx-2", "cluster-100gbe"}) {
    double before = 0;
    for (const Strategy& strategy : StrategiesOf(Example(name))) {
      EXPECT_GE(strategy.streamed_seconds, before) << name << " " << strategy.schedule.name;
      EXPECT_GE(strategy.seconds, strategy.streamed_seconds - kExact) << strategy.schedule.name;
      EXPECT_FALSE(strategy.schedule.source.empty()) << strategy.schedule.name;
      EXPECT_FALSE(strategy.schedule.formula.empty()) << strategy.schedule.name;
      before = strategy.streamed_seconds;
    }
  }
}

}  // namespace
}  // namespace pushpull
