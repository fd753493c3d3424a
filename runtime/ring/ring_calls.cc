// SPDX-License-Identifier: Apache-2.0
#include "runtime/ring/ring_calls.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// A worker that is gone is noticed by the coordinator, which then interrupts the others.
constexpr Duration kConnectTimeout = std::chrono::seconds(60);
constexpr Duration kCallTimeout = std::chrono::hours(24);

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectRing(const RankListener& listener,
                                                          const FormRing& form,
                                                          WorkerId self,
                                                          const Interrupt& interrupt) {
  const auto own =
      absl::c_find_if(form.workers, [&](const RingWorker& it) { return it.worker == self; });
  if (own == form.workers.end() || form.source >= form.workers.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring ", ToString(form.epoch), " has no place for ", ToString(self)));
  }
  MeshOptions options = {.rank = static_cast<uint32_t>(own - form.workers.begin()),
                         .addresses = {},
                         .group = form.token,
                         .interrupt = &interrupt};
  for (const RingWorker& worker : form.workers) {
    PUSHPULL_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(worker.address));
    options.addresses.push_back(std::move(address));
  }
  PUSHPULL_ASSIGN_OR_RETURN(LinkSet links,
                            ConnectRanks(listener, options, Deadline::After(kConnectTimeout)));
  auto ring = std::make_unique<Communicator>(options.rank, std::move(links));
  ring->UseInterrupt(interrupt);
  return ring;
}

absl::Status CopyState(Communicator& ring, const FormRing& form, RingState& state) {
  const Deadline deadline = Deadline::After(kCallTimeout);
  for (const std::span<std::byte> part : state.CopyParts())
    PUSHPULL_RETURN_IF_ERROR(ring.Broadcast(part, form.source, Algorithm::kAuto, deadline));
  state.TakeCopy(form.mark);
  return absl::OkStatus();
}

absl::Status TakeStep(Communicator& ring,
                      const FormRing& form,
                      std::span<const RingPush> pushes,
                      uint64_t batch,
                      RingState& state) {
  const Deadline deadline = Deadline::After(kCallTimeout);
  state.Contribute(pushes, ring.rank(), ring.size(), batch);
  PUSHPULL_RETURN_IF_ERROR(ring.AllReduce(std::as_writable_bytes(state.facts()),
                                          ReductionOp(ElementKind::kFloat64, ElementOp::kSum),
                                          Algorithm::kAuto,
                                          deadline));
  PUSHPULL_RETURN_IF_ERROR(ring.AllReduce(std::as_writable_bytes(state.gradients()),
                                          ReductionOp(ElementKind::kFloat32, ElementOp::kSum),
                                          Algorithm::kAuto,
                                          deadline));
  return state.Apply(form.workers, form.epoch);
}

}  // namespace pushpull
