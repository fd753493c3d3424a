// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/clock_estimate.h"

#include <algorithm>

namespace pushpull {

void ClockEstimate::Add(const ClockSample& sample) {
  const Duration there = sample.peer_received - sample.sent;
  const Duration back = sample.peer_sent - sample.received;
  measurements_.push_back({.round_trip = there - back, .offset = (there + back) / 2});
  if (measurements_.size() > kSamplesKept) measurements_.pop_front();
}

Duration ClockEstimate::offset() const {
  if (measurements_.empty()) return Duration::zero();
  return std::min_element(
             measurements_.begin(),
             measurements_.end(),
             [](const Measurement& a, const Measurement& b) { return a.round_trip < b.round_trip; })
      ->offset;
}

}  // namespace pushpull
