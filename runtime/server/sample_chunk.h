// SPDX-License-Identifier: Apache-2.0
//
// The chunk that holds the job's position in its data set: a SampleQueue in modes with common
// steps, SampleLeases in the others (both in consistency/). Where other chunks apply the optimizer,
// this one divides the next samples. A value from another mode, of a checkpoint or before a change
// of mode, is taken over.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/consistency/sample_leases.h"
#include "runtime/server/chunk.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

class StepRules;

bool HoldsSamples(const Chunk& chunk);

// Samples of a full step, over all workers; 0 if the chunk does not hold samples, or has no value
// yet.
uint64_t BatchOf(const Chunk& chunk);

// Divides the first samples among the members. `value`: a worker's version 0, changed in place.
// kInvalidArgument: `value` is not a sample queue.
absl::Status DivideFirstStep(const Chunk& chunk, const StepRules& rules, HostBuffer& value);

// The next version's value, once the step is complete with the contributors counted in `chunk`. A
// contributor that pushed with weight 0 wants no further samples. The next step has the batch that
// was set last.
// kDataLoss: the current value is damaged. kResourceExhausted: no memory.
absl::StatusOr<HostBuffer> DivideNextStep(const Chunk& chunk, const StepRules& rules);

// The next version's value, without leases of workers that are gone; empty: there are none, or the
// chunk has no leases. Errors as above.
absl::StatusOr<std::optional<HostBuffer>> WithoutGone(const Chunk& chunk, const StepRules& rules);

// The chunk's leases, if pushes to it may have to wait for one; else empty.
std::optional<SampleLeases> LeasesOf(const Chunk& chunk, const StepRules& rules);
// Whether the push of this worker, whose clock is then `clock`, is answered later: there is nothing
// to hand out to it, and it can wait. In Bounded it is not kept from a further step, without
// samples, if others wait for its clock.
bool AwaitsSamples(const SampleLeases& leases,
                   const Chunk& chunk,
                   const StepRules& rules,
                   const Waiter& push);

}  // namespace pushpull
