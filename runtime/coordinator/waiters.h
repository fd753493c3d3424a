// SPDX-License-Identifier: Apache-2.0
//
// Commands that poll the status until a condition holds: the coordinator of a finished job stays
// until each of them knows. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "pushpull/deadline.h"

namespace pushpull {

// Thread-compatible.
class Waiters {
 public:
  // A command that has not asked for this long is gone.
  static constexpr Duration kPatience = std::chrono::seconds(2);
  // More are answered, but not waited for.
  static constexpr size_t kMax = 64;

  // `waiter` is a number chosen by the command; 0: it does not wait. `is_over`: the answer says how
  // the job ended.
  void OnAsked(SteadyTime now, uint64_t waiter, bool is_over) {
    if (waiter == 0) return;
    if (is_over) {
      asked_at_.erase(waiter);
    } else if (asked_at_.contains(waiter) || asked_at_.size() < kMax) {
      asked_at_[waiter] = now;
    }
    Forget(now);
  }
  // Every waiting command knows how the job ended.
  bool IsEmpty(SteadyTime now) {
    Forget(now);
    return asked_at_.empty();
  }

 private:
  void Forget(SteadyTime now) {
    std::erase_if(asked_at_, [now](const auto& entry) { return now - entry.second > kPatience; });
  }

  std::map<uint64_t, SteadyTime> asked_at_;
};

}  // namespace pushpull
