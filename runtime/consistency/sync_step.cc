// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/sync_step.h"

#include "absl/algorithm/container.h"

namespace pushpull {

PushVerdict SyncStep::Judge(const MembershipView& membership,
                            Step version,
                            Step pushed,
                            WorkerId worker,
                            Incarnation incarnation) const {
  if (!membership.IsMember(worker, incarnation, pushed)) {
    // A late copy from before a mode change. Any other worker must rejoin: the step may have
    // completed without a worker that is no longer in the view.
    const bool was_counted =
        pushed < version && membership.StartsAfter(worker, incarnation, pushed);
    return was_counted ? PushVerdict::kAnswered : PushVerdict::kNotMember;
  }
  if (pushed < version) return PushVerdict::kAnswered;
  if (pushed > version) return PushVerdict::kTooEarly;
  return HasCounted(worker) ? PushVerdict::kDuplicate : PushVerdict::kContribute;
}

void SyncStep::Count(const Contribution& contribution) {
  const auto place = absl::c_lower_bound(
      contributors_, contribution, [](const Contribution& a, const Contribution& b) {
        return a.worker < b.worker;
      });
  contributors_.insert(place, contribution);
}

bool SyncStep::IsComplete(const MembershipView& membership,
                          Step step,
                          const Admission* admitted) const {
  if (contributors_.empty() && admitted == nullptr) return false;
  bool is_complete = true;
  bool is_needed = admitted != nullptr;
  membership.ForEachRequired(step, [&](WorkerId worker) {
    if (admitted != nullptr && !admitted->Has(worker)) return;
    is_needed = true;
    is_complete = is_complete && HasCounted(worker);
  });
  // An empty view completes no step: it waits for the next member.
  return is_complete && is_needed;
}

bool SyncStep::IsTurnOf(WorkerId worker,
                        const MembershipView& membership,
                        Step step,
                        const Admission* admitted) const {
  bool is_turn = true;
  membership.ForEachRequired(step, [&](WorkerId required) {
    const bool is_awaited = admitted == nullptr || admitted->Has(required);
    is_turn = is_turn && (!is_awaited || required >= worker || HasCounted(required));
  });
  return is_turn;
}

bool SyncStep::HasCounted(WorkerId worker) const {
  return absl::c_any_of(contributors_, [&](const Contribution& contribution) {
    return contribution.worker == worker;
  });
}

}  // namespace pushpull
