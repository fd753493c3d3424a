// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/chunk_slot.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {

ChunkSlot::ChunkSlot(const PlacedTensor& placed, uint64_t chunk_index, uint64_t num_bytes)
    : tensor(placed),
      index(chunk_index),
      state(placed.spec.optimizer, num_bytes),
      accumulator(placed.spec.reduction, num_bytes) {}

std::string ChunkSlot::Name() const {
  return absl::StrCat("tensor \"", tensor.spec.name, "\" chunk ", index);
}

bool ChunkSlot::HasHeld(WorkerId worker) const {
  return std::any_of(held.begin(), held.end(), [&](const HeldContribution& h) {
    return h.contribution.worker == worker;
  });
}

// A gated step keeps what the dead have contributed. Where all of them are gone and the job begins
// anew with the same step, a worker's next process takes the place of the one before.
bool ChunkSlot::HasHeldOf(const MembershipView& membership, const FrameHeader& push) const {
  return std::any_of(held.begin(), held.end(), [&](const HeldContribution& h) {
    return h.contribution.worker == push.worker && (!membership.active().consistency.gated ||
                                                    h.contribution.incarnation == push.incarnation);
  });
}

PushVerdict ChunkSlot::Judge(const MembershipView& membership, const FrameHeader& push) const {
  if (membership.IsOfNextMode(push.step)) return PushVerdict::kNotYet;
  const PushVerdict verdict =
      membership.active().consistency.is_sync()
          ? step.Judge(membership, state.version(), push.step, push.worker, push.incarnation)
          : clocks.Judge(membership, push.step, push.worker, push.incarnation);
  if (verdict == PushVerdict::kContribute && HasHeldOf(membership, push))
    return PushVerdict::kDuplicate;
  const Admission* admitted = Admitted(membership);
  if (verdict == PushVerdict::kContribute && admitted != nullptr && !admitted->Has(push.worker))
    return PushVerdict::kNotAdmitted;
  return verdict;
}

ContributorsDigest ChunkSlot::contributors() const {
  return counted.version == state.version() ? counted.contributors : 0;
}

const Admission* ChunkSlot::Admitted(const MembershipView& membership) const {
  const bool is_known = !is_leading() && admission && admission->step == state.version();
  return is_known && membership.active().consistency.is_led() ? &*admission : nullptr;
}

bool ChunkSlot::Awaits(const MembershipView& membership, WorkerId member) const {
  const Admission* admitted = Admitted(membership);
  return admitted == nullptr || admitted->Has(member);
}

void ChunkSlot::Learn(Admission decided) {
  const bool is_news =
      decided.step >= state.version() && (!admission || admission->step < decided.step);
  if (!is_leading() && is_news) admission = std::move(decided);
}

void ChunkSlot::Withdraw(WorkerId worker, Step before) {
  if (is_leading() || !admission || admission->step >= before) return;
  if (step.HasCounted(worker) || HasHeld(worker)) return;
  std::erase(admission->workers, worker);
}

bool ChunkSlot::IsComplete(const MembershipView& membership) const {
  const Consistency& consistency = membership.active().consistency;
  if (!consistency.is_sync()) return !step.contributors().empty();
  const Admission* admitted = Admitted(membership);
  if (consistency.is_led() && admitted == nullptr) return false;
  return step.IsComplete(membership, state.version(), admitted);
}

bool ChunkSlot::IsTurn(const MembershipView& membership, WorkerId worker) const {
  const Admission* admitted = Admitted(membership);
  // In what order they are to be added is not known before who they are.
  if (membership.active().consistency.is_led() && admitted == nullptr) return false;
  return step.IsTurnOf(worker, membership, state.version(), admitted);
}

void ChunkSlot::Hold(HeldContribution contribution) {
  std::erase_if(held, [&](const HeldContribution& h) {
    return h.contribution.worker == contribution.contribution.worker;
  });
  const auto place = std::lower_bound(held.begin(),
                                      held.end(),
                                      contribution,
                                      [](const HeldContribution& a, const HeldContribution& b) {
                                        return a.contribution.worker < b.contribution.worker;
                                      });
  held.insert(place, std::move(contribution));
}

void ChunkSlot::AddWaiter(const Waiter& waiter) {
  const auto kind = [](const Waiter& w) {
    const FrameType type = w.request.type;
    return type == FrameType::kPull || type == FrameType::kFetch ? type : FrameType::kPush;
  };
  std::erase_if(waiters, [&](const Waiter& other) {
    return other.request.worker == waiter.request.worker && kind(other) == kind(waiter);
  });
  waiters.push_back(waiter);
}

void ChunkSlot::DropWaitersOf(const Connection& connection) {
  std::erase_if(waiters, [&](const Waiter& waiter) { return waiter.connection == &connection; });
  for (HeldContribution& contribution : held) {
    if (contribution.waiter.connection == &connection) contribution.waiter.connection = nullptr;
  }
}

std::vector<Waiter> ChunkSlot::TakeSatisfied(Epoch epoch, const View& view) {
  const bool is_bounded = view.consistency.mode == ConsistencyMode::kBounded;
  const Step lowest = is_bounded ? clocks.Lowest(view) : Step{};
  const auto is_waiting = [&](const Waiter& waiter) {
    const bool is_parked = is_bounded && waiter.wants_value &&
                           IsTooEarlyToRead(lowest, view.consistency.staleness, waiter.clock);
    return is_parked || waiter.min_version > state.version() || waiter.request.epoch > epoch;
  };
  const auto satisfied = std::stable_partition(waiters.begin(), waiters.end(), is_waiting);
  std::vector<Waiter> taken(std::make_move_iterator(satisfied),
                            std::make_move_iterator(waiters.end()));
  waiters.erase(satisfied, waiters.end());
  return taken;
}

void ChunkSlot::ClearState() {
  DropContributions();
  state.Clear();
  clocks.Clear();
  counted = {};
  admission.reset();
  if (!accumulator.is_receiving()) accumulator.Release();
}

void ChunkSlot::DropOutdated(const MembershipView& membership) {
  if (!membership.active().consistency.gated || is_leading()) return;
  std::erase_if(held,
                [&](const HeldContribution& h) { return h.contribution.step != state.version(); });
}

void ChunkSlot::DropContributions() {
  step.Clear();
  held.clear();
  skips_step = false;
  if (!accumulator.is_receiving()) accumulator.Clear();
}

}  // namespace pushpull
