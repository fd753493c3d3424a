// SPDX-License-Identifier: Apache-2.0
//
// Gated steps: one decision for all chunks of a step, taken when every chunk has the contributions
// of all workers that will count in it (docs/decisions/0019-gated-step.md). The job's first chunk
// leads, as with backup workers (consistency/admission.h), but is pushed last. Pure.
//
//   worker            other chunk           leading chunk
//     | push t ----------> | holds it apart       |
//     | <---------- held t |                      |
//     |   ... held by every other chunk: asks     |
//     | push t ---------------------------------> | everybody has asked: step t completes
//     | <----------------- version t + 1 and who counted in t: the decision
//     | decided t -------> | sums up these alone
//     | <---- version t + 1|
#pragma once

#include <span>

#include "runtime/base/ids.h"
#include "runtime/consistency/membership_view.h"

namespace pushpull {

// Whether the leading chunk may complete `step` with the workers in `asked`, ascending: every
// required worker is among them, and there is at least one. A worker that has asked and then died
// may count or not: every chunk holds its contribution.
bool MayDecide(const MembershipView& membership, Step step, std::span<const WorkerId> asked);

}  // namespace pushpull
