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

  // Which tensor is left out of a step if this one is pushed next: another one that is not pushed
  // in the step under way yet, or this one, whose step is over. Empty: none. A tensor that is never
  // pushed is part of no step.
  std::optional<size_t> LeftOutBy(size_t tensor) const;
  // The program pushes nothing more in the step under way, except `last` right after this. Returns
  // the tensor that it has left out. `of_all`: those that it has never pushed count, too.
  std::optional<size_t> EndStep(bool of_all, std::optional<size_t> last = std::nullopt);

  // Begins the tensor's next push and returns its number; empty: the push must wait.
  std::optional<Step> Take(size_t tensor);
  Step Next(size_t tensor) const { return next_[tensor]; }
  // The highest next number of all tensors; 0 if there are none.
  Step Highest() const { return highest_; }

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
  std::optional<size_t> LeftOut(bool of_all, std::optional<size_t> last) const;

  Step first_;
  std::vector<Step> next_;  // by tensor
  Step highest_;            // of them
  size_t num_at_highest_ = 0;
  size_t num_used_ = 0;   // tensors that have been pushed
  bool is_over_ = false;  // the step below highest_
  std::optional<Step> hold_;
  bool is_ending_ = false;
  std::optional<Step> last_;  // of a worker that must leave
};

}  // namespace pushpull
