// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/step_numbers.h"

#include <algorithm>

namespace pushpull {

void StepNumbers::Begin(size_t num_tensors, Step first) {
  first_ = first;
  next_.assign(num_tensors, first);
  highest_ = num_tensors == 0 ? Step{} : first;
  num_at_highest_ = num_tensors;
  num_used_ = 0;
  is_over_ = false;
}

std::optional<size_t> StepNumbers::LeftOutBy(size_t tensor) const {
  const Step next = next_[tensor];
  if (next == highest_) return LeftOut(false, std::nullopt);
  const bool is_of_step_under_way = !is_over_ && next.value() + 1 == highest_.value();
  return is_of_step_under_way ? std::nullopt : std::optional(tensor);
}

std::optional<size_t> StepNumbers::EndStep(bool of_all, std::optional<size_t> last) {
  if (!last) is_over_ = true;
  return LeftOut(of_all, last);
}

// Takes constant time unless there is one.
std::optional<size_t> StepNumbers::LeftOut(bool of_all, std::optional<size_t> last) const {
  const auto is_expected = [&](size_t tensor) { return of_all || next_[tensor] != first_; };
  const size_t num_expected = of_all ? next_.size() : num_used_;
  const size_t num_later = last && is_expected(*last) ? 1 : 0;
  const bool is_any_pushed = highest_ != first_;
  if (!is_any_pushed || num_at_highest_ + num_later == num_expected) return std::nullopt;
  for (size_t i = 0; i < next_.size(); ++i) {
    if (next_[i] != highest_ && is_expected(i) && i != last) return i;
  }
  return std::nullopt;
}

std::optional<Step> StepNumbers::Take(size_t tensor) {
  const Step step = next_[tensor];
  if (hold_ && step >= *hold_) return std::nullopt;
  if (step == first_) ++num_used_;
  if (step == highest_) {  // the first of a step
    num_at_highest_ = 0;
    is_over_ = false;
  }
  next_[tensor] = Step{step.value() + 1};
  highest_ = std::max(highest_, next_[tensor]);
  if (next_[tensor] == highest_) ++num_at_highest_;
  return step;
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
