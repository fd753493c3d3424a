// SPDX-License-Identifier: Apache-2.0
//
// The clock. Code that measures time takes a TimeSource, so that a test can control it.
#pragma once

#include "pushpull/deadline.h"

namespace pushpull {

// Thread-safe.
class TimeSource {
 public:
  virtual ~TimeSource() = default;
  virtual SteadyTime Now() const = 0;
};

// The machine's steady clock, one object for the process.
inline const TimeSource& SystemTime() {
  class SystemTimeSource final : public TimeSource {
    SteadyTime Now() const override { return std::chrono::steady_clock::now(); }
  };
  static const SystemTimeSource time;
  return time;
}

// Seconds since 1970 by the machine's clock: only to show to people, never to measure with.
inline double UnixSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace pushpull
