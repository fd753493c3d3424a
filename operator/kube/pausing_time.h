// SPDX-License-Identifier: Apache-2.0
//
// Time that can be waited for: pauses between tries and turns in the rate limit. A test puts a fake
// in its place, so that an hour of backing off takes no time.
#pragma once

#include "operator/kube/cancellation.h"
#include "runtime/base/time_source.h"

namespace pushpull_operator {

// Thread-safe.
class PausingTime : public pushpull::TimeSource {
 public:
  // False when cancelled before `when`.
  virtual bool PauseUntil(pushpull::SteadyTime when, const Cancellation& cancellation) = 0;
};

// The machine's steady clock.
PausingTime& SystemPausingTime();

}  // namespace pushpull_operator
