// SPDX-License-Identifier: Apache-2.0
//
// The collective operations of a ring: copy the state, then sum and apply. The calls block; they
// end soon after the links' interrupt is set.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "runtime/membership/control.h"
#include "runtime/ring/ring_links.h"
#include "runtime/ring/ring_state.h"

namespace pushpull {

// Gives every worker the state of form.source. After an error `state` is a mixture.
absl::Status CopyState(RingLinks& ring, const FormRing& form, RingState& state);

// Takes one step. After an error the state is unchanged. `batch` as in RingState::Contribute.
//
//   kInvalidArgument  as RingState::Apply; all workers get it
//   others            as RingLinks: the ring has ended
absl::Status TakeStep(RingLinks& ring,
                      const FormRing& form,
                      std::span<const RingPush> pushes,
                      uint64_t batch,
                      RingState& state);

}  // namespace pushpull
