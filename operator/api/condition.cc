// SPDX-License-Identifier: Apache-2.0
#include "operator/api/condition.h"

#include <algorithm>
#include <utility>

namespace pushpull_operator {

const Condition* FindCondition(const std::vector<Condition>& conditions, absl::string_view type) {
  const auto found = std::find_if(
      conditions.begin(), conditions.end(), [&](const Condition& c) { return c.type == type; });
  return found == conditions.end() ? nullptr : &*found;
}

bool IsTrue(const std::vector<Condition>& conditions, absl::string_view type) {
  const Condition* condition = FindCondition(conditions, type);
  return condition != nullptr && condition->status == kConditionTrue;
}

void SetCondition(std::vector<Condition>& conditions, Condition condition) {
  for (Condition& old : conditions) {
    if (old.type != condition.type) continue;
    if (old.status == condition.status) condition.last_transition = old.last_transition;
    old = std::move(condition);
    return;
  }
  conditions.push_back(std::move(condition));
}

}  // namespace pushpull_operator
