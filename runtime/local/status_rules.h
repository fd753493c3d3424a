// SPDX-License-Identifier: Apache-2.0
//
// What the coordinator's status says of a member whose process the launcher watches, and of the
// whole run where coordinators were restarted. Pure.
#pragma once

#include "pushpull/deadline.h"

#include "runtime/job/training_job.h"
#include "runtime/local/workdir.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Of servers or workers; 0 before the coordinator's first answer.
uint32_t DesiredCount(const JobStatus& status, JobRole role);

// Whether the desired size includes the member. Everybody is desired before the coordinator's first
// answer: the manifest's size is in force.
bool IsDesired(const JobStatus& status, JobRole role, uint32_t index);

// The coordinator released this worker, and does not count it as alive.
bool WasReleased(const JobStatus& status, uint32_t worker);

// The coordinator counts this very process as alive.
bool IsListed(const JobStatus& status, const Endpoint& server);

// A worker of this index registered within that time: so did its process, if it is no older.
bool HasJoinedWithin(const JobStatus& status, uint32_t worker, Duration time);

// The job is under way, and some worker but this one takes part.
bool IsTrainingWithout(const JobStatus& status, JobRole role, uint32_t index);

// It is the only holder of some shards: the coordinator waits for it to return.
bool IsAwaited(const JobStatus& status, uint32_t server);

// Every server's statistics are of the last step.
bool HasLastStatistics(const JobStatus& status);

// No requested checkpoint is under way.
bool IsSaved(const JobStatus& status);

// `now` with what only `earlier` had, the status of a coordinator that has died: the report then
// has the losses and resizes of before. Members count from their own start, so where both have a
// total the higher one is the later; what a member that ended in between had counted since the last
// report of it is missing.
JobStatus WithEarlier(const JobStatus& earlier, JobStatus now);

}  // namespace pushpull
