// SPDX-License-Identifier: Apache-2.0
//
// Two binary trees over the same members, in which whoever passes on in one is a leaf in the other:
// Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
// Parallel Computing 35 (2009). NCCL builds the same ones.
#pragma once

#include <array>
#include <vector>

namespace pushpull {

// Of each member its parent, -1 of the root; at least two members.
std::array<std::vector<int>, 2> DoubleTree(int members);

// Hops from the deepest leaf to its root.
int TreeDepth(const std::vector<int>& parents);

}  // namespace pushpull
