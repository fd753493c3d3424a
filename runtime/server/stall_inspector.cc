// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/stall_inspector.h"

#include <algorithm>

namespace pushpull {

std::optional<Stall> StallOf(const Chunk& chunk,
                             const StepRules& rules,
                             SteadyTime now,
                             Duration limit) {
  const OpenStep& step = chunk.step();
  const bool waits =
      step.has_begun() && !rules.policy().AppliesEachPush() && now - step.began_at() >= limit;
  if (!waits) return std::nullopt;
  Stall stall{.step = chunk.state().version(),
              .tensor = chunk.tensor().spec.name,
              .missing = {},
              .seconds = ToSeconds(now - step.began_at())};
  const Admission* admitted = rules.policy().Admitted(chunk);
  rules.membership().ForEachRequired(chunk.state().version(), [&](WorkerId worker) {
    if (admitted != nullptr && !admitted->Has(worker)) return;
    const bool has_pushed = step.counted().HasCounted(worker) || step.HasHeld(worker);
    const bool is_named =
        std::find(stall.missing.begin(), stall.missing.end(), worker) != stall.missing.end();
    if (!has_pushed && !is_named) stall.missing.push_back(worker);
  });
  return stall.missing.empty() ? std::nullopt : std::optional<Stall>(std::move(stall));
}

void TakeLonger(const std::optional<Stall>& other, std::optional<Stall>& kept) {
  if (other && (!kept || other->seconds > kept->seconds)) kept = other;
}

}  // namespace pushpull
