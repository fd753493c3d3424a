// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/retry_pace.h"

#include <algorithm>
#include <utility>

namespace pushpull {
namespace {

// One line for a failure that passes at once, six for one that lasts a minute.
constexpr Duration kSecondWarningAfter = std::chrono::seconds(2);

}  // namespace

Duration RetryPace::Failed(SteadyTime now) {
  if (!since_) since_ = now;
  const Duration lasted = now - *since_;
  is_warning_due_ = lasted >= next_warning_;
  if (is_warning_due_) next_warning_ = std::max(kSecondWarningAfter, lasted * 2);
  const Duration delay = std::exchange(next_, std::min(next_ * 2, longest_));
  return delay + FromSeconds(ToSeconds(delay) * 0.5 * jitter_);
}

void RetryPace::Succeeded() {
  next_ = first_;
  since_.reset();
  next_warning_ = Duration::zero();
  is_warning_due_ = false;
}

}  // namespace pushpull
