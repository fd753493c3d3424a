// SPDX-License-Identifier: Apache-2.0
//
// A push that counts for several workers (docs/decisions/0084-joint-pushes.md): it counts for all
// of them, or for none.
#pragma once

#include "absl/status/statusor.h"

#include "runtime/server/open_step.h"
#include "runtime/server/step_policy.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/frame.h"

namespace pushpull {

inline bool IsJoint(const FrameHeader& push) {
  return (push.flags & kFlagJoint) != 0;
}

// What a complete push means for the chunk. A joint one means it for all of its workers, who become
// the contributors of `received`, or for its sender alone, whose mistake it is. Any error says why
// the workers of a joint push must push for themselves; kFailedPrecondition: some of them have
// pushed already, or are not members, as happens while others join or leave. The rest no correct
// peer sends: for workers that the view has in no group with the sender, malformed, or of a chunk
// whose pushes never count jointly.
absl::StatusOr<PushVerdict> JudgePush(const StepPolicy& policy,
                                      const Chunk& chunk,
                                      const ReceivedFrame& push,
                                      ReceivedContribution& received);

}  // namespace pushpull
