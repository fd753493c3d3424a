// SPDX-License-Identifier: Apache-2.0
//
// Times in which a job has no members: suspended, or between the end of all members and their
// common restart. Pure.
#pragma once

#include "operator/plan/draft.h"

namespace pushpull_operator {

// Notes since when the job is suspended, and for how long it was. Goes first: deadlines depend on
// it.
void CountSuspension(Draft& draft);

// Brings the job there and keeps it there. True: that is the whole plan for now.
bool PlanPause(Draft& draft);

}  // namespace pushpull_operator
