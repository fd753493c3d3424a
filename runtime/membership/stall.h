// SPDX-License-Identifier: Apache-2.0
//
// A step that does not complete because workers do not push. Servers detect stalls, the coordinator
// merges them.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/ids.h"

namespace pushpull {

// A step that has waited longer than JobSettings::stall since its first contribution.
struct Stall {
  Step step;
  std::string tensor;             // one that is incomplete
  std::vector<WorkerId> missing;  // whose contribution has not arrived
  double seconds = 0;             // since the first contribution
};

// "step 12 waits for worker-1: no gradient of tensor "w" for 10.3 s".
std::string ToString(const Stall& stall);

}  // namespace pushpull
