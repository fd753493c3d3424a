// SPDX-License-Identifier: Apache-2.0
//
// What a worker of a ring does together with all others: copy, then sum and apply. The calls block;
// they end soon after the interrupt of the links is set.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "runtime/membership/control.h"
#include "runtime/ring/ring_links.h"
#include "runtime/ring/ring_state.h"

namespace pushpull {

// Every worker has the state of form.source then. After an error `state` is a mixture.
absl::Status CopyState(RingLinks& ring, const FormRing& form, RingState& state);

// Takes one step. After an error of a call the state is what it was. `batch` as in
// RingState::Contribute.
//
//   kInvalidArgument  as RingState::Apply; all workers get it
//   others            as RingLinks: the ring has ended
absl::Status TakeStep(RingLinks& ring,
                      const FormRing& form,
                      std::span<const RingPush> pushes,
                      uint64_t batch,
                      RingState& state);

}  // namespace pushpull
