// SPDX-License-Identifier: Apache-2.0
//
// Handles members that have ended: spec.restart, by the policy that `pushpull run` uses too
// (runtime/job/restart_policy.h), with its counts in the status. Pure.
//
// An end is counted once: its pod's uid is written together with the count, before the pod is
// deleted. The end of a worker or server is handled only with a report of the coordinator, which
// may say that the job has failed or that the member was released.
#pragma once

#include "operator/plan/draft.h"

namespace pushpull_operator {

// Deletes the pods of members that restart, adds those that do not to finished_members, sets
// restarts.next_at when all members restart, or fails the job.
void PlanRestarts(Draft& draft);

// When the member may restart; nothing: at once.
std::optional<WallTime> RestartDue(const TrainingJobStatus& status, const std::string& pod);

}  // namespace pushpull_operator
