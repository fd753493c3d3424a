// SPDX-License-Identifier: Apache-2.0
//
// Client-side rate limit: `qps` requests a second in the long run, `burst` at once. Pure.
#pragma once

#include "pushpull/deadline.h"

namespace pushpull_operator {

struct RateLimit {
  double qps = 50;
  int burst = 100;
};

// Thread-compatible.
class TokenBucket {
 public:
  // `limit` is at least 0.001 requests a second with a burst of 1.
  TokenBucket(RateLimit limit, pushpull::SteadyTime now);

  // Reserves the next slot and returns its time, never before `now`. Slots are reserved in the
  // order of the calls, so no caller starves.
  pushpull::SteadyTime Reserve(pushpull::SteadyTime now);

 private:
  const pushpull::Duration interval_;
  const pushpull::Duration burst_span_;  // how far the burst may run ahead of the steady pace
  pushpull::SteadyTime next_;            // the next slot at the steady pace
};

}  // namespace pushpull_operator
