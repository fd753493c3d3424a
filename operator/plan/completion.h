// SPDX-License-Identifier: Apache-2.0
//
// The end of a job and what follows: success, deadlines, cleanup, time to live. Final: a job that
// has ended never runs again. Pure.
#pragma once

#include "operator/plan/draft.h"

namespace pushpull_operator {

// Fails the job when it exceeds activeDeadlineSeconds, or startDeadlineSeconds while it starts.
void CheckDeadlines(Draft& draft);

// Ends the job when all workers are done and the last checkpoint is written. After PlanRestarts,
// which finds the members that are done.
void CheckSuccess(Draft& draft);

// Deletes pods by spec.cleanup, and the job after spec.ttlAfterFinishedSeconds.
void PlanFinished(Draft& draft);

}  // namespace pushpull_operator
