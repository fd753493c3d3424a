// SPDX-License-Identifier: Apache-2.0
//
// A step that does not end because workers do not push. Plain data: servers notice it, the
// coordinator makes one of all.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/ids.h"

namespace pushpull {

// It waits for longer than JobSettings::stall since its first contribution.
struct Stall {
  Step step;
  std::string tensor;             // one that waits
  std::vector<WorkerId> missing;  // whose contribution has not come
  double seconds = 0;             // since the first
};

// "step 12 waits for worker-1: no gradient of tensor "w" for 10.3 s".
std::string ToString(const Stall& stall);

}  // namespace pushpull
