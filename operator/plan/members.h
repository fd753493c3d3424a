// SPDX-License-Identifier: Apache-2.0
//
// Which members there shall be: the coordinator first, then servers, then workers, as many as the
// coordinator has agreed to. Pure.
//
// A larger size: the coordinator is told, then the pods come, then it moves shards to them. A
// smaller one: the coordinator is told, moves the shards of the highest indices away and lets those
// members go; a pod goes when it holds nothing any more. Scaling back cancels that.
#pragma once

#include "operator/plan/draft.h"

namespace pushpull_operator {

void PlanMembers(Draft& draft);

// Members of this role that are not wanted any more and are still there.
std::vector<MemberId> Leaving(const Draft& draft, pushpull::JobRole role);

// What spec.sync says of it.
SyncWord WantedSync(const Draft& draft);

// Whether spec.scaling.cooldownSeconds puts off the next change of the size.
bool IsCoolingDown(const Draft& draft);

}  // namespace pushpull_operator
