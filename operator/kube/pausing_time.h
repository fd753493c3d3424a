// SPDX-License-Identifier: Apache-2.0
//
// A clock that can be waited on: for pauses between retries, and for the rate limit. Tests use a
// fake, so that an hour of backoff takes no time.
#pragma once

#include "operator/kube/cancellation.h"
#include "runtime/base/time_source.h"

namespace pushpull_operator {

// Thread-safe.
class PausingTime : public pushpull::TimeSource {
 public:
  // False if cancelled before `when`.
  virtual bool PauseUntil(pushpull::SteadyTime when, const Cancellation& cancellation) = 0;
};

// The machine's steady clock.
PausingTime& SystemPausingTime();

}  // namespace pushpull_operator
