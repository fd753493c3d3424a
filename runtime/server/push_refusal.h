// SPDX-License-Identifier: Apache-2.0
//
// What a worker is told of a push that cannot count: whether to send it again, to rejoin or to
// report it, and why.
#pragma once

#include "absl/status/status.h"

#include "runtime/consistency/membership_view.h"
#include "runtime/consistency/sync_step.h"
#include "runtime/server/chunk_slot.h"
#include "runtime/transport/frame.h"

namespace pushpull {

// OK where it counts, or has counted before. kUnavailable: it may be sent again. kAborted: its
// worker is no member. Anything else: report.
absl::Status WhyRefused(const ChunkSlot& slot,
                        const MembershipView& membership,
                        const FrameHeader& push,
                        PushVerdict verdict);

// Whether a payload of this length and codec can be of the chunk. kInvalidArgument: it cannot, the
// text has both sides.
absl::Status CheckPayload(const ChunkSlot& slot, const FrameHeader& frame);

}  // namespace pushpull
