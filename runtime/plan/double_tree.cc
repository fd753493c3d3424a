// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/double_tree.h"

#include <algorithm>
#include <cstddef>

namespace pushpull {
namespace {

// The lowest set bit gives a member's height: odd members are leaves.
int ParentOf(int member, int members) {
  if (member == 0) return -1;
  const int bit = member & -member;
  const int up = (member ^ bit) | (bit << 1);
  return up < members ? up : member ^ bit;
}

}  // namespace

std::array<std::vector<int>, 2> DoubleTree(int members) {
  std::array<std::vector<int>, 2> trees;
  for (int member = 0; member < members; ++member) {
    trees[0].push_back(ParentOf(member, members));
    // The second tree is the first one mirrored or, if the number of members is odd, shifted by
    // one: leaves and inner nodes swap.
    const bool is_even = members % 2 == 0;
    const int place = is_even ? members - 1 - member : (member + members - 1) % members;
    const int parent = ParentOf(place, members);
    const int mirrored = is_even ? members - 1 - parent : (parent + 1) % members;
    trees[1].push_back(parent < 0 ? -1 : mirrored);
  }
  return trees;
}

int TreeDepth(const std::vector<int>& parents) {
  int deepest = 0;
  for (const int first : parents) {
    int depth = 0;
    for (int parent = first; parent >= 0; parent = parents[static_cast<size_t>(parent)]) ++depth;
    deepest = std::max(deepest, depth);
  }
  return deepest;
}

}  // namespace pushpull
