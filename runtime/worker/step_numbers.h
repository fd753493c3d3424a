// SPDX-License-Identifier: Apache-2.0
//
// Assigns numbers to the pushes of a worker's program, and decides whether they may begin: before
// the mode of the job changes, a worker stops between two steps (membership/control.h, HoldSteps).
// Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "runtime/base/ids.h"

namespace pushpull {

// Tensors are named by their position in the job's list. Thread-compatible.
class StepNumbers {
 public:
  // All `num_tensors` tensors begin with `first`. A hold stays.
  void Begin(size_t num_tensors, Step first);

  // Begins the tensor's next push and returns its number; empty: the push must wait.
  std::optional<Step> Take(size_t tensor);
  Step Next(size_t tensor) const { return next_[tensor]; }
  // The highest next number of all tensors; 0 if there are none.
  Step Highest() const;

  // From now on only steps below `until` begin.
  void HoldFrom(Step until) { hold_ = until; }
  void Resume() { hold_.reset(); }
  bool is_held() const { return hold_.has_value(); }
  // The worker must leave: from the next MayPush on, only the step under way at that time may be
  // pushed, or the one that begins with that push.
  void EndSoon() { is_ending_ = true; }
  bool MayPush(size_t tensor);

  // Every step below the hold has begun for every tensor that is pushed at all.
  bool IsAtHold() const;

 private:
  Step first_;
  std::vector<Step> next_;  // by tensor
  std::optional<Step> hold_;
  bool is_ending_ = false;
  std::optional<Step> last_;  // of a worker that must leave
};

}  // namespace pushpull
