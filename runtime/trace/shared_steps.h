// SPDX-License-Identifier: Apache-2.0
//
// Which of the recorded steps a trace shows. Workers hear of a trace at different steps, so each
// records some more than were asked for. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/membership/trace_report.h"

namespace pushpull {

// Removes all pushes but those of the first `steps` steps that every worker has recorded, and the
// spans that are of none of them. Where that would be less than half of `steps`, as in Async, where
// each worker counts its own steps, each keeps its own first ones. Workers without pushes do not
// count.
void KeepSharedSteps(uint32_t steps, std::vector<TraceReport>& reports);

}  // namespace pushpull
