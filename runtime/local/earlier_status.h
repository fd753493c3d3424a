// SPDX-License-Identifier: Apache-2.0
//
// What a coordinator that has died had said of the job, carried over into what its successor says:
// the report then has the losses and resizes of before. Pure.
#pragma once

#include "runtime/membership/job_status.h"

namespace pushpull {

// `now` with what only `earlier` had. Members count from their own start, so where both have a
// total the higher one is the later; what a member that ended in between had counted since the last
// word of it is missing.
JobStatus WithEarlier(const JobStatus& earlier, JobStatus now);

}  // namespace pushpull
