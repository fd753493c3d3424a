// SPDX-License-Identifier: Apache-2.0
//
// The one decision of the operator: what there is -> what to do. Pure; all memory is in the status.
//
//   none --1--> Starting --2--> Running <--3--> Scaling
//                  ^ |             |               |
//                  | 4             4               4
//                  5 v             v               v
//               Suspended      every phase --6--> Succeeded, Failed
//
//   1 seen first: the phase is written before the first pod     4 spec.suspend: a save, then no
//   pods 2 every member is ready                                     5 resumed 3 another size is
//   wanted; it is reached                     6 final; pods go by spec.cleanup
//
// The way through the files: plan.cc asks the_end.cc (finished jobs, deadlines), pause.cc (suspend,
// restart of all members), restarts.cc (members that have ended), members.cc (who is missing, who
// is not wanted any more), conditions.cc (what is said of it).
#pragma once

#include "operator/plan/job_plan.h"
#include "operator/plan/observation.h"

namespace pushpull_operator {

JobPlan Plan(const Observation& seen);

// Whether this operator runs the job: it is not another one's, goes on, and its spec can be read.
bool IsInWork(const Observation& seen);

}  // namespace pushpull_operator
