// SPDX-License-Identifier: Apache-2.0
//
// The operator's decisions: observation -> plan. Pure; all memory is in the status.
//
// clang-format off
//   none --1--> Starting --2--> Running <--3--> Scaling
//                  ^ |             |               |
//                  | 4             4               4
//                  5 v             v               v
//               Suspended      every phase --6--> Succeeded, Failed
//
//   1  first seen; the phase is written before the first pod is created
//   2  every member is ready
//   3  the desired size changes; it is reached
//   4  spec.suspend: a checkpoint, then no pods
//   5  resumed
//   6  final; pods are deleted by spec.cleanup
// clang-format on
//
// plan.cc calls runtime.cc (what the job is merged over), completion.cc (finished jobs, deadlines),
// pause.cc (suspend, restart of all members), restarts.cc (members that have ended), members.cc
// (pods to create and to delete), conditions.cc (counts, phase, conditions).
#pragma once

#include <chrono>

#include "operator/plan/job_plan.h"
#include "operator/plan/observation.h"

namespace pushpull_operator {

// Whether this operator is responsible for the job, and nobody has deleted it.
bool IsManaged(const Observation& seen);

JobPlan Plan(const Observation& seen);

// A refused runtime is tried again after this time: nothing reports that a policy has changed.
inline constexpr std::chrono::seconds kRuntimeRetry{30};

// Whether the runtime that the job names is not recorded in its status yet: until then, what it
// says is unknown.
bool NeedsRuntime(const Observation& seen);

// Whether this operator runs the job: it manages it, the job has not ended and its spec is valid
// and complete.
bool IsActive(const Observation& seen);

// Whether the job has ended for good and none of its pods runs: its certificates are no longer
// used.
bool NeedsNoKeys(const Observation& seen);

}  // namespace pushpull_operator
