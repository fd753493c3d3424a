// SPDX-License-Identifier: Apache-2.0
//
// How many requests may go to the API server: `qps` a second in the long run, `burst` at once. Each
// request takes its turn here, watches when they start. Pure.
#pragma once

#include "runtime/base/deadline.h"

namespace pushpull_operator {

struct RateLimit {
  double qps = 50;
  int burst = 100;
};

// Thread-compatible.
class TokenBucket {
 public:
  // `limit` has at least 0.001 requests a second and a burst of 1.
  TokenBucket(RateLimit limit, pushpull::SteadyTime now);

  // Takes the next turn and says when it is; never before `now`. Turns are given out in the order
  // of the calls, so nobody starves.
  pushpull::SteadyTime TakeTurn(pushpull::SteadyTime now);

 private:
  const pushpull::Duration interval_;
  const pushpull::Duration burst_span_;  // how far ahead of a steady pace the burst may run
  pushpull::SteadyTime next_;            // the turn after the last one, at a steady pace
};

}  // namespace pushpull_operator
