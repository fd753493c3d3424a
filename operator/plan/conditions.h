// SPDX-License-Identifier: Apache-2.0
//
// The part of the status that a plan writes for users: counts, phase, conditions. Pure.
#pragma once

#include "operator/plan/draft.h"

namespace pushpull_operator {

// Selectors, counts of pods, generation: of every job.
void DescribePods(Draft& draft);

// Phase and conditions of a job that has not ended, has members and is not being stopped.
void DescribeRunning(Draft& draft);

// Of one that has none, or is losing them; `reason` is CamelCase.
void DescribeStopped(Draft& draft, const std::string& reason, const std::string& message);

}  // namespace pushpull_operator
