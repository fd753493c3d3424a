// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/gate.h"

#include "absl/algorithm/container.h"

namespace pushpull {

bool MayDecide(const MembershipView& membership, Step step, std::span<const WorkerId> asked) {
  bool is_anybody_needed = false;
  bool is_complete = true;
  membership.ForEachRequired(step, [&](WorkerId worker) {
    is_anybody_needed = true;
    is_complete = is_complete && absl::c_binary_search(asked, worker);
  });
  return is_anybody_needed && is_complete;
}

}  // namespace pushpull
