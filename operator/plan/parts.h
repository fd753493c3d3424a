// SPDX-License-Identifier: Apache-2.0
//
// The parts of a plan, in the order in which plan.cc calls them. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "operator/plan/draft.h"

namespace pushpull_operator {

// Message of the condition Reconciled when it is true.
inline constexpr char kReconciled[] = "the job's objects are as its spec says";

// runtime.cc: the runtime that spec.runtimeRef names is recorded in the status before anything is
// planned. From then on the job is merged over this record, whatever becomes of the object.

// Records it, or says why that cannot be done. The rest is planned once the job shows it.
void PlanRuntime(Draft& draft);

// pause.cc: times in which a job has no members: suspended, or between the end of all members and
// their common restart.

// Accounts for the time that the job is suspended. Comes first: deadlines depend on it.
void CountSuspension(Draft& draft);

// Decides whether a suspension has to wait for a checkpoint, and asks for it.
void HoldSuspension(Draft& draft);

// Whether the job has no pods, or is losing them, by spec.suspend or because all members restart.
bool IsPaused(Draft& draft);

// Pauses the job and keeps it paused. True: nothing else is to be planned.
bool PlanPause(Draft& draft);

// completion.cc: the end of a job and what follows: success, deadlines, cleanup, time to live.
// Final: a job that has ended never runs again.

// Fails the job when it exceeds activeDeadlineSeconds, or startDeadlineSeconds while it starts.
void CheckDeadlines(Draft& draft);

// Ends the job when all workers are done and the last checkpoint is written; if one of them is
// enough, the others' pods are deleted first. Called after PlanRestarts, which finds out who is
// done.
void CheckSuccess(Draft& draft);

// Whether a container of the job's pods may still run.
bool HasRunningPods(const Draft& draft);

// Deletes pods by spec.cleanup, and the job after spec.ttlAfterFinishedSeconds.
void PlanFinished(Draft& draft);

// restarts.cc: handles members that have ended: spec.restart, by the policy that `pushpull run`
// uses too (runtime/job/restart_policy.h), with its counts in the status.
//
// An end is counted once: its pod's uid is written together with the count, before the pod is
// deleted. The end of a worker or server is handled only with a report of the coordinator, which
// may say that the job has failed or that the member was released.

// Deletes the pods of members that restart, adds those that do not to finished_members, sets
// restarts.next_at when all members restart, or fails the job.
void PlanRestarts(Draft& draft);

// The job has failed because a server was lost with the only copy of its shards: the rules of
// spec.restart decide about its end, and without one that matches all members restart if there is a
// checkpoint. False: they do not restart.
bool PlanLostServer(Draft& draft);

// How workers have ended says nothing about those that begin now, all together.
void ForgetEnds(TrainingJobStatus& status);

// The worker whose end makes the job succeed by spec.restart.successPolicy, whatever the others do;
// nothing: the job waits for all.
std::optional<MemberId> DecisiveWorker(const Draft& draft);

// When the member may restart; nothing: at once.
std::optional<WallTime> RestartDue(const TrainingJobStatus& status, const std::string& pod);

// members.cc: creates and deletes members: the coordinator first, then servers, then workers, as
// many as the coordinator has agreed to.
//
// Scaling up: the coordinator gets the new size, the pods are created, then it moves shards to
// them. Scaling down: the coordinator moves the shards of the highest indices away and releases
// those members; a pod is deleted once it holds nothing. Scaling back cancels that.

void PlanMembers(Draft& draft);

// Members of this role that are no longer desired and still have a pod.
std::vector<MemberId> Leaving(const Draft& draft, pushpull::JobRole role);

// The part of spec.sync that a running job can change.
SyncSettings DesiredSync(const Draft& draft);

// Whether spec.scaling.cooldownSeconds delays the next change of size.
bool IsCoolingDown(const Draft& draft);

// awaited.cc: members that have a pod but have not registered with the coordinator.

// "mnist-worker-1 for 5 minutes (its pod runs)", for members awaited for at least this long; empty:
// none. The times are rounded down, so that they seldom change.
std::string AwaitedMembers(Draft& draft, std::chrono::seconds at_least);

// conditions.cc: the part of the status that a plan writes for users: counts, phase, conditions.

// Selectors, counts of pods, generation: for every job.
void DescribePods(Draft& draft);

// Phase and conditions of a job that has not ended, has members and is not being stopped.
void DescribeRunning(Draft& draft);

// The reason and the duration that `kubectl get` prints. Comes last.
void Summarize(Draft& draft);

// Conditions of a job that has no members, or is losing them; `reason` is CamelCase.
void DescribeStopped(Draft& draft, const std::string& reason, const std::string& message);

}  // namespace pushpull_operator
