// SPDX-License-Identifier: Apache-2.0
#include "runtime/ring/ring_calls.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// The coordinator notices when a worker is gone, and then interrupts the others.
constexpr Duration kCallTimeout = std::chrono::hours(24);

}  // namespace

absl::Status CopyState(RingLinks& ring, const FormRing& form, RingState& state) {
  const Deadline deadline = Deadline::After(kCallTimeout);
  for (const std::span<std::byte> part : state.CopyParts())
    PUSHPULL_RETURN_IF_ERROR(ring.Broadcast(part, form.source, deadline));
  state.TakeCopy(form.mark);
  return absl::OkStatus();
}

absl::Status TakeStep(RingLinks& ring,
                      const FormRing& form,
                      std::span<const RingPush> pushes,
                      uint64_t batch,
                      RingState& state) {
  const Deadline deadline = Deadline::After(kCallTimeout);
  state.Contribute(pushes, ring.rank(), ring.size(), batch);
  PUSHPULL_RETURN_IF_ERROR(ring.Reduce(std::as_writable_bytes(state.facts()),
                                       ReductionOp(ElementKind::kFloat64, ElementOp::kSum),
                                       deadline));
  for (const RingGradients& part : state.gradients()) {
    PUSHPULL_RETURN_IF_ERROR(ring.Reduce(std::as_writable_bytes(part.values),
                                         ReductionOp(ElementKind::kFloat32, part.op),
                                         deadline));
  }
  return state.Apply(form.workers, form.epoch);
}

}  // namespace pushpull
