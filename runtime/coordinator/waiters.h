// SPDX-License-Identifier: Apache-2.0
//
// Commands that ask for the status again and again until something has come about: the coordinator
// of a job that is over stays until each of them knows. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "pushpull/deadline.h"

namespace pushpull {

// Thread-compatible.
class Waiters {
 public:
  // One that has not asked for so long has gone.
  static constexpr Duration kPatience = std::chrono::seconds(2);
  // More are answered, but not waited for.
  static constexpr size_t kMax = 64;

  // `waiter` is a number that the command has drawn, 0: it does not wait. `is_over`: the answer
  // says how the job has ended.
  void OnAsked(SteadyTime now, uint64_t waiter, bool is_over) {
    if (waiter == 0) return;
    if (is_over) {
      asked_at_.erase(waiter);
    } else if (asked_at_.contains(waiter) || asked_at_.size() < kMax) {
      asked_at_[waiter] = now;
    }
    Forget(now);
  }
  // Everybody who waits knows how the job has ended.
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
