// SPDX-License-Identifier: Apache-2.0
//
// Where "now" comes from. Code that measures takes a TimeSource, so that a test can hold the clock.
#pragma once

#include "runtime/base/deadline.h"

namespace pushpull {

// Thread-safe.
class TimeSource {
 public:
  virtual ~TimeSource() = default;
  virtual SteadyTime Now() const = 0;
};

// The machine's steady clock. Stateless, so one object serves the whole process.
const TimeSource& SystemTime();

}  // namespace pushpull
