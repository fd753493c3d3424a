// SPDX-License-Identifier: Apache-2.0
//
// Notices a step that has begun and does not end: some workers have pushed, others have not for
// longer than spec.sync.stallSeconds. The coordinator makes one line of what all servers say
// (coordinator/stall_watch.h). Pure.
#pragma once

#include <optional>

#include "runtime/base/deadline.h"
#include "runtime/consistency/membership_view.h"
#include "runtime/membership/control.h"
#include "runtime/server/chunk_slot.h"

namespace pushpull {

// The stall of this chunk on its primary; none where its step waits for nobody, has no contribution
// yet, or the first came less than `limit` ago.
std::optional<Stall> StallOf(const ChunkSlot& slot,
                             const MembershipView& membership,
                             SteadyTime now,
                             Duration limit);

// Keeps the one that has lasted longer.
void TakeLonger(const std::optional<Stall>& other, std::optional<Stall>& kept);

}  // namespace pushpull
