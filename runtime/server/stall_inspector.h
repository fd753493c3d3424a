// SPDX-License-Identifier: Apache-2.0
//
// Finds a step that has begun and does not complete: some workers have pushed, others have not for
// longer than spec.sync.stallSeconds. The coordinator logs one line for all servers' reports
// (coordinator/stall_watch.h). Pure.
#pragma once

#include <optional>

#include "pushpull/deadline.h"

#include "runtime/membership/control.h"
#include "runtime/server/chunk.h"
#include "runtime/server/step_policy.h"

namespace pushpull {

// The stall of this chunk on its primary; none where its step waits for nobody, has no contribution
// yet, or the first came less than `limit` ago.
std::optional<Stall> StallOf(const Chunk& chunk,
                             const StepRules& rules,
                             SteadyTime now,
                             Duration limit);

// Keeps the one that has lasted longer.
void TakeLonger(const std::optional<Stall>& other, std::optional<Stall>& kept);

}  // namespace pushpull
