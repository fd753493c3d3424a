// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/double_tree.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

std::vector<int> NumChildren(const std::vector<int>& parents) {
  std::vector<int> children(parents.size(), 0);
  for (const int parent : parents) {
    if (parent >= 0) ++children[static_cast<size_t>(parent)];
  }
  return children;
}

TEST(DoubleTreeTest, BothHaveOneRootThatAllReach) {
  for (int members = 2; members <= 65; ++members) {
    for (const std::vector<int>& parents : DoubleTree(members)) {
      ASSERT_EQ(parents.size(), static_cast<size_t>(members));
      EXPECT_EQ(std::ranges::count(parents, -1), 1);
      for (int first : parents) {
        int hops = 0;
        while (first >= 0 && hops <= members) {
          first = parents[static_cast<size_t>(first)];
          ++hops;
        }
        EXPECT_LE(hops, members) << "a loop in the tree of " << members;
      }
    }
  }
}

TEST(DoubleTreeTest, NobodyReceivesMoreThanTwoHalves) {
  for (int members = 2; members <= 65; ++members) {
    const auto trees = DoubleTree(members);
    const std::vector<int> first = NumChildren(trees[0]);
    const std::vector<int> second = NumChildren(trees[1]);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_LE(first[i] + second[i], 2) << members;
  }
}

TEST(DoubleTreeTest, DepthGrowsWithTheLogarithm) {
  EXPECT_EQ(TreeDepth(DoubleTree(2)[0]), 1);
  EXPECT_EQ(TreeDepth(DoubleTree(8)[0]), 3);
  EXPECT_EQ(TreeDepth(DoubleTree(8)[1]), 3);
  EXPECT_EQ(TreeDepth(DoubleTree(64)[0]), 6);
}

}  // namespace
}  // namespace pushpull
