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

SteadyTime TokenBucket::Reserve(SteadyTime now) {
  // Idle time refills the burst and no more.
  next_ = std::max(next_, now - burst_span_);
  const SteadyTime slot = next_;
  next_ += interval_;
  return std::max(slot, now);
}

}  // namespace pushpull_operator
