// SPDX-License-Identifier: Apache-2.0
//
// What becomes of members that have ended: spec.restart as runtime/job/restart_policy.h decides it,
// for `pushpull run` and for pods alike, counted in the status. Pure.
//
// An end is counted once: its pod's uid is written together with the count, before the pod is
// deleted. A worker's or server's end is judged when the coordinator has said what it means: that
// the job has failed, or that the member was released.
#pragma once

#include "operator/plan/draft.h"

namespace pushpull_operator {

// Deletes the pods of members that start again, notes in draft.over who does not, in
// restarts.next_at that all members restart, or fails the job.
void PlanRestarts(Draft& draft);

// Until when the member waits for its next start; nothing: it need not wait.
std::optional<WallTime> RestartDue(const TrainingJobStatus& status, const std::string& pod);

}  // namespace pushpull_operator
