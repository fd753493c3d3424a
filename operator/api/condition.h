// SPDX-License-Identifier: Apache-2.0
//
// Conditions of an object, as metav1.Condition has them: a list with one entry a type. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "operator/api/wall_time.h"

namespace pushpull_operator {

// How the API spells the status of a condition.
inline constexpr char kConditionTrue[] = "True";
inline constexpr char kConditionFalse[] = "False";
inline constexpr char kConditionUnknown[] = "Unknown";

struct Condition {
  std::string type;
  std::string status;
  int64_t observed_generation = 0;  // of the spec that it is about
  WallTime last_transition{};       // since when it has this status
  std::string reason;               // CamelCase
  std::string message;
  friend bool operator==(const Condition&, const Condition&) = default;
};

// Null where there is none.
const Condition* FindCondition(const std::vector<Condition>& conditions, absl::string_view type);

bool IsTrue(const std::vector<Condition>& conditions, absl::string_view type);

// Adds `condition`, or replaces the one of its type. Its last_transition is used only where the
// status has changed; otherwise the old one stays.
void SetCondition(std::vector<Condition>& conditions, Condition condition);

}  // namespace pushpull_operator
