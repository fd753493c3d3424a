// SPDX-License-Identifier: Apache-2.0
//
// The chunk that holds the job's position in its data set (consistency/sample_queue.h). Where other
// chunks apply the optimizer, this one divides the next samples.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/consistency/membership_view.h"
#include "runtime/server/chunk.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

class StepRules;

bool HoldsSamples(const Chunk& chunk);

// Samples of a full step, over all workers; 0 if the chunk does not hold samples, or has no value
// yet.
uint64_t BatchOf(const Chunk& chunk);

// Divides step 0 among its members. `value`: a worker's version 0, changed in place.
// kInvalidArgument: `value` is not a sample queue.
absl::Status DivideFirstStep(const Chunk& chunk,
                             const MembershipView& membership,
                             HostBuffer& value);

// The next version's value, once the step is complete with the contributors counted in `chunk`. A
// contributor that pushed with weight 0 wants no further samples. The next step has the batch that
// was set last.
// kDataLoss: the current value is damaged. kResourceExhausted: no memory.
absl::StatusOr<HostBuffer> DivideNextStep(const Chunk& chunk, const StepRules& rules);

}  // namespace pushpull
