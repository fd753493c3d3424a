// SPDX-License-Identifier: Apache-2.0
//
// Gated steps: one decision for all chunks of a step, taken when every chunk has everything of
// everybody who will count in it (decisions/0019-gated-step.md). The job's first chunk leads as
// with backup workers (consistency/admission.h), but comes last. Pure.
//
//   worker            other chunk           leading chunk
//     | push t ----------> | holds it apart       |
//     | <---------- held t |                      |
//     |   ... held by every other chunk: it asks  |
//     | push t ---------------------------------> | everybody has asked: step t is done, and
//     | <----------------- version t + 1, who counted in t: the decision
//     | decided t -------> | sums up these, no other
//     | <---- version t + 1|
#pragma once

#include <span>

#include "runtime/base/ids.h"
#include "runtime/consistency/membership_view.h"

namespace pushpull {

// Whether the leading chunk may complete `step` with those who have asked, ascending: everybody who
// has to contribute is among them, and somebody has to. Whoever has asked and died since may be
// left out or not: what it has is everywhere.
bool MayDecide(const MembershipView& membership, Step step, std::span<const WorkerId> asked);

}  // namespace pushpull
