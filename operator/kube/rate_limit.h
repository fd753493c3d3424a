// SPDX-License-Identifier: Apache-2.0
//
// Client-side rate limit: `qps` requests per second in the long run, `burst` at once. Pure.
#pragma once

#include <algorithm>

#include "pushpull/deadline.h"

namespace pushpull_operator {

struct RateLimit {
  double qps = 50;
  int burst = 100;
};

// Thread-compatible.
class TokenBucket {
 public:
  // `limit` is raised to at least 0.001 requests per second and a burst of 1.
  TokenBucket(RateLimit limit, pushpull::SteadyTime now)
      : interval_(pushpull::FromSeconds(1 / std::max(limit.qps, 0.001))),
        burst_span_(interval_ * (std::max(limit.burst, 1) - 1)),
        next_(now - burst_span_) {}

  // Reserves the next slot and returns its time, never before `now`. Slots are reserved in the
  // order of the calls, so no caller starves.
  pushpull::SteadyTime Reserve(pushpull::SteadyTime now) {
    // Idle time refills at most the burst.
    const pushpull::SteadyTime slot = std::max(next_, now - burst_span_);
    next_ = slot + interval_;
    return std::max(slot, now);
  }

 private:
  const pushpull::Duration interval_;
  const pushpull::Duration burst_span_;  // how far the burst may run ahead of the steady rate
  pushpull::SteadyTime next_;            // the next slot at the steady rate
};

}  // namespace pushpull_operator
