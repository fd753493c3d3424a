// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/rate_limit.h"

#include <algorithm>

namespace pushpull_operator {

using pushpull::Duration;
using pushpull::SteadyTime;

TokenBucket::TokenBucket(RateLimit limit, SteadyTime now)
    : interval_(pushpull::FromSeconds(1 / std::max(limit.qps, 0.001))),
      burst_span_(interval_ * (std::max(limit.burst, 1) - 1)),
      next_(now - burst_span_) {}

SteadyTime TokenBucket::TakeTurn(SteadyTime now) {
  // What was not used for longer than the burst lasts is lost.
  next_ = std::max(next_, now - burst_span_);
  const SteadyTime turn = next_;
  next_ += interval_;
  return std::max(turn, now);
}

}  // namespace pushpull_operator
