// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/step_numbers.h"

#include <algorithm>

namespace pushpull {

void StepNumbers::Begin(size_t num_tensors, Step first) {
  first_ = first;
  next_.assign(num_tensors, first);
}

std::optional<Step> StepNumbers::Take(size_t tensor) {
  const Step step = next_[tensor];
  if (hold_ && step >= *hold_) return std::nullopt;
  next_[tensor] = Step{step.value() + 1};
  return step;
}

Step StepNumbers::Highest() const {
  const auto highest = std::max_element(next_.begin(), next_.end());
  return highest == next_.end() ? Step{} : *highest;
}

bool StepNumbers::MayPush(size_t tensor) {
  if (!is_ending_) return true;
  const Step highest = Highest();
  const bool is_within_step = next_[tensor] < highest;
  if (!last_) last_ = is_within_step ? Step{highest.value() - 1} : highest;
  return next_[tensor] <= *last_;
}

bool StepNumbers::IsAtHold() const {
  // A tensor that was left out of a whole step is not part of any.
  const bool may_be_unused = Highest().value() > first_.value() + 1;
  return hold_ && std::all_of(next_.begin(), next_.end(), [&](Step next) {
           return next >= *hold_ || (may_be_unused && next == first_);
         });
}

}  // namespace pushpull
