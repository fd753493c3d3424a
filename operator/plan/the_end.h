// SPDX-License-Identifier: Apache-2.0
//
// How a job ends, and what becomes of it then: success, deadlines, cleanup, time to live. Final: a
// job that has ended never runs again. Pure.
#pragma once

#include "operator/plan/draft.h"

namespace pushpull_operator {

// Fails the job when it has run, or has been starting, for too long.
void CheckDeadlines(Draft& draft);

// Ends the job when all workers are done and the last checkpoint is written. After PlanRestarts,
// which says who is done.
void CheckSuccess(Draft& draft);

// Of a job that has ended: which pods go, and when the object does.
void PlanFinished(Draft& draft);

}  // namespace pushpull_operator
