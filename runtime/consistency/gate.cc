// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/gate.h"

#include <algorithm>

namespace pushpull {

bool MayDecide(const MembershipView& membership, Step step, std::span<const WorkerId> asked) {
  bool is_anybody_needed = false;
  bool is_complete = true;
  membership.ForEachRequired(step, [&](WorkerId worker) {
    is_anybody_needed = true;
    is_complete = is_complete && std::binary_search(asked.begin(), asked.end(), worker);
  });
  return is_anybody_needed && is_complete;
}

}  // namespace pushpull
