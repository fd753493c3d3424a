// SPDX-License-Identifier: Apache-2.0
//
// When to retry, and when to log a warning: delays double up to a bound, and jitter makes them
// differ between callers; a warning is due at the first failure and then each time the failure has
// lasted twice as long. Pure.
#pragma once

#include <optional>

#include "pushpull/deadline.h"

namespace pushpull {

// Thread-compatible.
class RetryPace {
 public:
  // The first retry comes after `first`, later ones after at most `longest`. A `jitter` of 0 to 1
  // adds up to half of each delay, so that callers that lose the same peer together do not come
  // back together.
  RetryPace(Duration first, Duration longest, double jitter = 0)
      : first_(first), longest_(longest), jitter_(jitter), next_(first) {}

  // Records a failed try. Returns how long to wait before the next.
  Duration Failed(SteadyTime now);
  // Whether the last failure warrants a warning: the first, and those after 2, 4, 8, ... seconds.
  bool is_warning_due() const { return is_warning_due_; }
  // How long it has been failing.
  Duration Lasted(SteadyTime now) const { return since_ ? now - *since_ : Duration::zero(); }
  // Records a successful try.
  void Succeeded();

 private:
  const Duration first_;
  const Duration longest_;
  const double jitter_;
  Duration next_;
  std::optional<SteadyTime> since_;
  Duration next_warning_{0};
  bool is_warning_due_ = false;
};

}  // namespace pushpull
