// SPDX-License-Identifier: Apache-2.0
//
// Rings of direct NVLinks: each visits every GPU once, and no two use the same link.
#pragma once

#include <vector>

#include "runtime/plan/topology.h"

namespace pushpull {

struct Ring {
  std::vector<int> order;  // of GPUs, from GPU 0; the last sends to the first
  int width = 0;           // parallel links between neighbours
  friend bool operator==(const Ring&, const Ring&) = default;
};

// The widest ring first, then the widest among the remaining links, until none is left: for the
// eight V100 of a DGX-1 one of double links and one of single links. The search ends after a
// bounded number of steps and may then find fewer rings than there are.
std::vector<Ring> FindNvLinkRings(const Machine& machine);

}  // namespace pushpull
