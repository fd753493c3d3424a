// SPDX-License-Identifier: Apache-2.0
//
// What the coordinator's status says about a member whose process the launcher watches, and about
// the whole run if coordinators were restarted. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/job/training_job.h"
#include "runtime/local/workdir.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// The desired number of servers or workers; 0 before the coordinator's first answer.
uint32_t DesiredCount(const JobStatus& status, JobRole role);

// Whether the desired size includes the member. Before the coordinator's first answer every member
// is desired: the manifest's size is in force.
bool IsDesired(const JobStatus& status, JobRole role, uint32_t index);

// The coordinator released this worker and does not count it as alive.
bool WasReleased(const JobStatus& status, uint32_t worker);

// The coordinator counts this very process as alive.
bool IsListed(const JobStatus& status, const Endpoint& server);

// A worker with this index registered within that time; if the process is no older, it was that
// one.
bool HasJoinedWithin(const JobStatus& status, uint32_t worker, Duration time);

// A process of this worker that registered within that time has made a step.
bool HasSteppedWithin(const JobStatus& status, uint32_t worker, Duration time);

// The job is running, and some worker other than this member takes part.
bool IsTrainingWithout(const JobStatus& status, JobRole role, uint32_t index);

// Those that the coordinator does not know to be left out or, without a reason, to be done, such as
// one that was started since.
std::vector<LeftOutWorker> UnknownTo(const JobStatus& status,
                                     const std::map<WorkerId, std::string>& left_out);

// The server is the only holder of some shards, and the coordinator waits for it to return.
bool IsAwaited(const JobStatus& status, uint32_t server);

// Every server's statistics include the last step.
bool HasLastStatistics(const JobStatus& status);

// The step under way will not end by itself: workers that it needs are missing, or none is there.
bool IsStuck(const JobStatus& status);

// No worker takes part.
bool HasNoWorker(const JobStatus& status);

// The step of the last checkpoint, saved or restored; 0: none.
Step LastSaved(const JobStatus& status);

// No requested checkpoint is in progress.
bool IsSaved(const JobStatus& status);

// `now` with what only `earlier` has, the status of a coordinator that has died, so that the report
// includes its losses and resizes. Members count from their own start, so of two totals the higher
// one is the later; what a member that ended in between counted after its last report is missing.
JobStatus WithEarlier(const JobStatus& earlier, JobStatus now);

}  // namespace pushpull
