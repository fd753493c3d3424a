// SPDX-License-Identifier: Apache-2.0
//
// Two binary trees over the same members, such that an inner node of one is a leaf of the other:
// Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
// Parallel Computing 35 (2009). NCCL builds the same ones.
#pragma once

#include <array>
#include <vector>

namespace pushpull {

// The parent of each member, -1 for the root; there must be at least two members.
std::array<std::vector<int>, 2> DoubleTree(int members);

// The number of hops from the deepest leaf to the root.
int TreeDepth(const std::vector<int>& parents);

}  // namespace pushpull
