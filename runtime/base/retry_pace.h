// SPDX-License-Identifier: Apache-2.0
//
// When to try again what has failed, and when to say so: delays that double up to a bound, and a
// warning at the first failure and then each time the trouble has lasted twice as long. Pure.
#pragma once

#include <optional>

#include "runtime/base/deadline.h"

namespace pushpull {

// Thread-compatible.
class RetryPace {
 public:
  // The first try follows a failure after `first`, and no later one after more than `longest`.
  RetryPace(Duration first, Duration longest) : first_(first), longest_(longest), next_(first) {}

  // A try has failed: how long to wait before the next.
  Duration Failed(SteadyTime now);
  // Whether the last failure is worth a warning: the first, and those after 2, 4, 8, ... seconds.
  bool is_warning_due() const { return is_warning_due_; }
  // How long it has been failing.
  Duration Lasted(SteadyTime now) const { return since_ ? now - *since_ : Duration::zero(); }
  // It works again.
  void Succeeded();

 private:
  const Duration first_;
  const Duration longest_;
  Duration next_;
  std::optional<SteadyTime> since_;
  Duration next_warning_{0};
  bool is_warning_due_ = false;
};

}  // namespace pushpull
