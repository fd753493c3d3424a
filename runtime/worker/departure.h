// SPDX-License-Identifier: Apache-2.0
//
// Why a worker leaves its job before the job is done: either the coordinator has released it
// because the job has shrunk, or the platform ends the process (SIGTERM) and another one replaces
// it.
#pragma once

#include <atomic>
#include <csignal>
#include <optional>

#include "runtime/base/signals.h"

namespace pushpull {

// Thread-safe.
class Departure {
 public:
  // Set by the coordinator, which may withdraw it.
  void SetReleased(bool is_released) { is_released_.store(is_released, kOrder); }
  // Asks the process to end. Returns whether this is the first request.
  bool RequestEnd() { return !is_end_requested_.exchange(true); }

  bool is_end_requested() const { return is_end_requested_.load(kOrder); }
  bool must_leave() const { return is_released_.load(kOrder) || is_end_requested(); }
  // The program has learned that it must leave: it asked, or a push was rejected.
  void SetKnown() { is_known_.store(true, kOrder); }

  // Whether a worker that leaves now abandons work that was assigned to it. `has_more`: whether its
  // share of the samples has further steps; empty: the job does not divide samples.
  bool IsEarly(std::optional<bool> has_more) const {
    if (!must_leave()) return false;
    // A program that does not know it must leave does so because it is done. One that knows may be
    // done too, which only its samples show.
    if (!has_more) return is_known_.load(kOrder) || is_released_.load(kOrder);
    return is_known_.load(kOrder) && *has_more;
  }

  // The program ends before its part is done and must be replaced.
  void SetReplaced() { exit_code_.store(ExitCodeOf(SIGTERM), kOrder); }
  // The worker leaves; whether it is early is IsEarly's result.
  void OnLeave(bool is_early) {
    const bool is_replaced = is_early && is_end_requested() && !is_released_.load(kOrder);
    if (is_replaced) SetReplaced();
    was_released_.store(is_early && !is_replaced, kOrder);
  }
  // It has left because it was released, its part unfinished, though it may have been kept since.
  bool was_released() const { return was_released_.load(kOrder); }
  int exit_code() const { return exit_code_.load(kOrder); }

 private:
  static constexpr std::memory_order kOrder = std::memory_order_relaxed;

  std::atomic<bool> is_released_ = false;
  std::atomic<bool> is_end_requested_ = false;
  std::atomic<bool> is_known_ = false;
  std::atomic<bool> was_released_ = false;
  std::atomic<int> exit_code_ = 0;
};

}  // namespace pushpull
