// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/break_even.h"

#include <gtest/gtest.h>

#include "tests/unit/runtime/plan/topologies.h"

namespace pushpull {
namespace {

TEST(FindBreakEvenTest, CountsComputingAndSynchronizing) {
  // Two GPUs synchronize in 10 ms, four in 15 ms.
  const BreakEven found = FindBreakEven(Example("pcie-4"), kGradient, 0.0201, 32);

  EXPECT_EQ(found.workers, 4);
  EXPECT_NEAR(found.sync_seconds, 0.015, 1e-9);
  EXPECT_EQ(found.in_turn.from_workers, 2);
  EXPECT_NEAR(found.in_turn.from_step_seconds, 0.0201 / 2 + 0.010, 1e-9);
  EXPECT_NEAR(found.in_turn.step_seconds, 0.0201 / 4 + 0.015, 1e-9);
  EXPECT_TRUE(found.in_turn.pays);
}

TEST(FindBreakEvenTest, ThreeWorkersMayPayWhereTwoDoNot) {
  // 8 servers take 12.8 ms for up to 8 workers: T / 2 + 12.8 ms > T > T / 3 + 12.8 ms.
  const BreakEven found = FindBreakEven(CpuCluster(8, 8), kGradient, 0.0225, 8);

  EXPECT_EQ(found.in_turn.from_workers, 3);
  EXPECT_NEAR(found.in_turn.from_step_seconds, 0.0225 / 3 + 0.0128, 1e-9);
}

TEST(FindBreakEvenTest, WhatIsTooFastToComputeNeverPays) {
  const BreakEven found = FindBreakEven(Example("pcie-4"), kGradient, 0.0199, 32);

  EXPECT_FALSE(found.in_turn.from_workers.has_value());
  EXPECT_FALSE(found.in_turn.pays);
  // Overlapped, two workers need 10 ms.
  EXPECT_EQ(found.overlapped.from_workers, 2);
  EXPECT_NEAR(found.overlapped.from_step_seconds, 0.010, 1e-9);
  EXPECT_NEAR(found.overlapped.step_seconds, 0.015, 1e-9);
}

TEST(FindBreakEvenTest, TheBatchFromWhichOnItPaysIsTheFirstThatDoes) {
  const Topology topology = Example("pcie-4");
  const double sample = 1.1e-3;

  const double batch = FindBreakEven(topology, kGradient, 64 * sample, 64).in_turn.from_batch;

  EXPECT_EQ(batch, 19);  // 15 ms / (1.1 ms x 3/4) = 18.2
  const auto at = [&](double samples) {
    return FindBreakEven(topology, kGradient, samples * sample, static_cast<int>(samples));
  };
  EXPECT_TRUE(at(batch).in_turn.pays);
  EXPECT_FALSE(at(batch - 1).in_turn.pays);
  EXPECT_EQ(at(64).overlapped.from_batch, 14);
  EXPECT_TRUE(at(14).overlapped.pays);
  EXPECT_FALSE(at(13).overlapped.pays);
}

TEST(FindBreakEvenTest, MachinesJoinAsAWhole) {
  const BreakEven found = FindBreakEven(Example("cluster-100gbe"), kGradient, 10.0, 64);

  EXPECT_EQ(found.workers, 32);
  EXPECT_EQ(found.strategy, "hierarchical");
  EXPECT_EQ(found.in_turn.from_workers, 2);
}

}  // namespace
}  // namespace pushpull
