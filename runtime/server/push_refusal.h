// SPDX-License-Identifier: Apache-2.0
//
// Why a push cannot count, and what the worker does about it.
#pragma once

#include "absl/status/status.h"

#include "runtime/consistency/sync_step.h"
#include "runtime/server/chunk.h"
#include "runtime/server/step_policy.h"
#include "runtime/transport/frame.h"

namespace pushpull {

// OK where it counts, or has counted before.
//   kUnavailable   not now: send it again
//   kAborted       the worker is not a member: rejoin
//   others         a mistake of the worker or a failed chunk: report
absl::Status WhyRefused(const Chunk& chunk,
                        const StepRules& rules,
                        const FrameHeader& push,
                        PushVerdict verdict);

// kInvalidArgument: a payload of this length and codec cannot be of the chunk; the text has both
// sides.
absl::Status CheckPayload(const Chunk& chunk, const FrameHeader& frame);

}  // namespace pushpull
