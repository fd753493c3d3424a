// SPDX-License-Identifier: Apache-2.0
//
// What a worker of a ring does together with all others: connect and copy, then sum and apply. The
// calls block; they end soon after the interrupt is set.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/collective/communicator.h"
#include "runtime/collective/interrupt.h"
#include "runtime/collective/rank_mesh.h"
#include "runtime/membership/control.h"
#include "runtime/ring/ring_state.h"

namespace pushpull {

// Connects to all others of the ring. `interrupt` outlives the communicator.
//
//   kInvalidArgument  `self` is not of the ring, or an address is none
//   others            as ConnectRanks
absl::StatusOr<std::unique_ptr<Communicator>> ConnectRing(const RankListener& listener,
                                                          const FormRing& form,
                                                          WorkerId self,
                                                          const Interrupt& interrupt);

// Every worker has the state of form.source then. After an error `state` is a mixture.
absl::Status CopyState(Communicator& ring, const FormRing& form, RingState& state);

// Takes one step. After an error of a call the state is what it was. `batch` as in
// RingState::Contribute.
//
//   kInvalidArgument  as RingState::Apply; all workers get it
//   others            as Communicator: the ring has ended
absl::Status TakeStep(Communicator& ring,
                      const FormRing& form,
                      std::span<const RingPush> pushes,
                      uint64_t batch,
                      RingState& state);

}  // namespace pushpull
