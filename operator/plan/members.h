// SPDX-License-Identifier: Apache-2.0
//
// Creates and deletes members: the coordinator first, then servers, then workers, as many as the
// coordinator has agreed to. Pure.
//
// Scaling up: the coordinator gets the new size, the pods are created, then it moves shards to
// them. Scaling down: the coordinator moves the shards of the highest indices away and releases
// those members; a pod is deleted once it holds nothing. Scaling back cancels that.
#pragma once

#include "operator/plan/draft.h"

namespace pushpull_operator {

void PlanMembers(Draft& draft);

// Members of this role that are no longer desired and still have a pod.
std::vector<MemberId> Leaving(const Draft& draft, pushpull::JobRole role);

// spec.sync, as far as a running job can change it.
SyncSettings DesiredSync(const Draft& draft);

// Whether spec.scaling.cooldownSeconds puts off the next change of the size.
bool IsCoolingDown(const Draft& draft);

}  // namespace pushpull_operator
