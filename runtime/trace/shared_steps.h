// SPDX-License-Identifier: Apache-2.0
//
// Which of the recorded steps a trace shows. Workers learn of a trace at different steps, so each
// records a few more than were requested. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/membership/trace_report.h"

namespace pushpull {

// Removes all pushes except those of the first `steps` steps that every worker has recorded, and
// the spans that belong to none of them. If that would leave fewer than half of `steps`, as in
// Async, where each worker counts its own steps, each worker keeps its own first ones. Workers
// without pushes do not count.
void KeepSharedSteps(uint32_t steps, std::vector<TraceReport>& reports);

}  // namespace pushpull
