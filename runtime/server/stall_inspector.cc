// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/stall_inspector.h"

#include <algorithm>

namespace pushpull {

std::optional<Stall> StallOf(const ChunkSlot& slot,
                             const MembershipView& membership,
                             SteadyTime now,
                             Duration limit) {
  const bool has_begun = !slot.step.contributors().empty() || !slot.held.empty();
  const bool waits =
      has_begun && membership.active().consistency.is_sync() && now - slot.step_began_at >= limit;
  if (!waits) return std::nullopt;
  Stall stall{.step = slot.state.version(),
              .tensor = slot.tensor.spec.name,
              .missing = {},
              .seconds = ToSeconds(now - slot.step_began_at)};
  membership.ForEachRequired(slot.state.version(), [&](WorkerId worker) {
    if (!slot.Awaits(membership, worker)) return;
    const bool is_there = slot.step.HasCounted(worker) || slot.HasHeld(worker);
    const bool is_named =
        std::find(stall.missing.begin(), stall.missing.end(), worker) != stall.missing.end();
    if (!is_there && !is_named) stall.missing.push_back(worker);
  });
  return stall.missing.empty() ? std::nullopt : std::optional<Stall>(std::move(stall));
}

void TakeLonger(const std::optional<Stall>& other, std::optional<Stall>& kept) {
  if (other && (!kept || other->seconds > kept->seconds)) kept = other;
}

}  // namespace pushpull
