// SPDX-License-Identifier: Apache-2.0
//
// The part of Lane in which the leading chunk says who counts in a step: backup workers
// (decisions/0018-the-first-chunk-admits.md) and, with lane_gate.cc, gated steps.
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "runtime/replication/admission_frame.h"
#include "runtime/server/lane.h"

namespace pushpull {

void Lane::SetWantedWorkers(uint32_t workers) {
  if (workers == workers_wanted_) return;
  workers_wanted_ = workers;
  ChunkSlot* slot = Find(kLeadingChunk);
  if (slot == nullptr) return;
  AddHeld(*slot);
  CompleteIfReady(*slot);
}

bool Lane::Leads(const ChunkSlot& slot) const {
  return slot.is_leading() && membership_.active().consistency.is_led();
}

bool Lane::HasQuorum(const ChunkSlot& slot) const {
  if (is_gated()) return HasEverybody(slot);
  return slot.step.contributors().size() + slot.held.size() >=
         membership_.Quorum(slot.state.version(), workers_wanted_);
}

bool Lane::LacksAdmission(const ChunkSlot& slot) const {
  return membership_.active().consistency.admits() && !slot.is_leading() &&
         slot.Admitted(membership_) == nullptr;
}

// Nothing is decided yet, so what the dead have asked for needs not be granted.
void Lane::DropAsksOfTheGone(ChunkSlot& slot) {
  if (!Leads(slot)) return;
  std::erase_if(slot.held, [&](HeldContribution& held) {
    const Contribution& asked = held.contribution;
    if (membership_.IsMember(asked.worker, asked.incarnation, slot.state.version())) return false;
    pool_->Return(std::move(held.values));
    return true;
  });
}

bool Lane::LearnAdmission(ChunkSlot& slot, const ReceivedFrame& frame) {
  if ((frame.header.flags & kFlagAdmission) == 0) return true;
  std::span<const std::byte> meta = frame.meta;
  absl::StatusOr<Admission> admission = TakeAdmission(meta);
  if (!admission.ok()) return false;
  slot.Learn(*std::move(admission));
  if (is_gated()) {
    AddHeld(slot);
    CompleteIfReady(slot);
  }
  return true;
}

void Lane::OnFetch(Connection& connection, ChunkSlot& slot, const ReceivedFrame& frame) {
  // Whoever fetches has no gradient for the steps before: a new process, mostly.
  slot.Withdraw(frame.header.worker, frame.header.step);
  slot.AddWaiter({.connection = &connection,
                  .request = frame.header,
                  .min_version = frame.header.step,
                  .clock = frame.header.clock});
  AddHeld(slot);
  CompleteIfReady(slot);
  if (slot.state.is_initialized()) Publish(slot);
}

void Lane::AddAdmission(const ChunkSlot& slot, OutgoingFrame& answer) const {
  if (!slot.is_leading() || !slot.admission) return;
  if (slot.admission->step.value() + 1 != slot.state.version().value()) return;
  const std::vector<std::byte> admission = EncodeAdmission(*slot.admission);
  answer.meta.insert(answer.meta.end(), admission.begin(), admission.end());
  answer.header.flags |= kFlagAdmission;
}

}  // namespace pushpull
