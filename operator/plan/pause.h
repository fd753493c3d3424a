// SPDX-License-Identifier: Apache-2.0
//
// Times in which a job has no members: suspended, or between the end of all members and their
// common restart. Pure.
#pragma once

#include "operator/plan/draft.h"

namespace pushpull_operator {

// Accounts for the time that the job is suspended. Comes first: deadlines depend on it.
void CountSuspension(Draft& draft);

// Pauses the job and keeps it paused. True: nothing else is to be planned.
bool PlanPause(Draft& draft);

}  // namespace pushpull_operator
