// SPDX-License-Identifier: Apache-2.0
//
// Rings of direct NVLinks: each passes every GPU once, and no two use the same link.
#pragma once

#include <vector>

#include "runtime/plan/topology.h"

namespace pushpull {

struct Ring {
  std::vector<int> order;  // of the GPUs, from GPU 0; the last sends to the first
  int width = 0;           // links side by side between each two neighbours
  friend bool operator==(const Ring&, const Ring&) = default;
};

// The widest ring first, then the widest of what links are left, until there is none: of the eight
// V100 of a DGX-1 one of double links and one of single links. The search ends after a bounded
// number of steps; it then finds fewer rings than there are.
std::vector<Ring> FindNvLinkRings(const Machine& machine);

}  // namespace pushpull
