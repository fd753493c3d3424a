// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/nvlink_rings.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/runtime/plan/topologies.h"

namespace pushpull {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(FindNvLinkRingsTest, ACubeMeshHasADoubleAndASingleRing) {
  const std::vector<Ring> rings = FindNvLinkRings(CubeMesh());

  ASSERT_THAT(rings, SizeIs(2));
  EXPECT_EQ(rings[0].width, 2);
  EXPECT_EQ(rings[1].width, 1);
}

TEST(FindNvLinkRingsTest, RingsPassEachGpuOnceAndShareNoLink) {
  const Machine machine = CubeMesh();
  std::map<std::pair<int, int>, int> left;
  for (const NvLinkPair& pair : machine.nvlink->pairs) left[{pair.first, pair.second}] = pair.count;

  for (const Ring& ring : FindNvLinkRings(machine)) {
    std::vector<int> sorted = ring.order;
    std::ranges::sort(sorted);
    EXPECT_THAT(sorted, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    for (size_t i = 0; i < ring.order.size(); ++i) {
      const int from = ring.order[i];
      const int to = ring.order[(i + 1) % ring.order.size()];
      EXPECT_GE(left[std::minmax(from, to)] -= ring.width, 0) << from << " - " << to;
    }
  }
}

TEST(FindNvLinkRingsTest, WithoutAWayAroundThereIsNone) {
  Machine machine = PcieMachine(4);
  machine.nvlink = NvLinks{.bandwidth = 20e9, .pairs = {{0, 1, 1}, {1, 2, 1}, {2, 3, 1}}};

  EXPECT_THAT(FindNvLinkRings(machine), IsEmpty());
}

TEST(FindNvLinkRingsTest, ASearchWithoutAnEndIsGivenUp) {
  // Two cliques of twelve with one link between them: no ring, and too many paths to try them all.
  Machine machine = PcieMachine(24);
  machine.nvlink = NvLinks{.bandwidth = 20e9, .pairs = {{11, 12, 1}}};
  for (int i = 0; i < 24; ++i) {
    for (int j = i + 1; j < 24; ++j) {
      if (i / 12 == j / 12) machine.nvlink->pairs.push_back({i, j, 1});
    }
  }

  EXPECT_THAT(FindNvLinkRings(machine), IsEmpty());
}

TEST(FindNvLinkRingsTest, TwoGpusHaveOneOfAllTheirLinks) {
  Machine machine = PcieMachine(2);
  machine.nvlink = NvLinks{.bandwidth = 20e9, .pairs = {{0, 1, 3}}};

  EXPECT_THAT(FindNvLinkRings(machine), ::testing::ElementsAre(Ring{{0, 1}, 3}));
}

}  // namespace
}  // namespace pushpull
