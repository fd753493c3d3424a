// SPDX-License-Identifier: Apache-2.0
//
// The chunk that holds the job's place in its data set (consistency/sample_queue.h): where other
// chunks take an optimizer's step, this one hands out the next samples.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/consistency/membership_view.h"
#include "runtime/server/chunk_slot.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

bool HoldsSamples(const ChunkSlot& slot);

// Divides step 0 among its members. `value` is what a worker brought as version 0.
// kInvalidArgument: it is no queue.
absl::Status DivideFirstStep(const ChunkSlot& slot,
                             const MembershipView& membership,
                             HostBuffer& value);

// The next version's value: the step is complete with the contributors that are counted in `slot`.
// A contributor that pushed with weight 0 has asked for no further samples.
// kDataLoss: the present value is damaged. kResourceExhausted: no memory.
absl::StatusOr<HostBuffer> DivideNextStep(const ChunkSlot& slot, const MembershipView& membership);

}  // namespace pushpull
