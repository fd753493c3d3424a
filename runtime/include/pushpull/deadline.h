// SPDX-License-Identifier: Apache-2.0
//
// Steady time and deadlines. Every blocking call takes a Deadline.
#pragma once

#include <chrono>

namespace pushpull {

using SteadyTime = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

// The point in steady time after which a call returns kDeadlineExceeded.
class Deadline {
 public:
  explicit Deadline(SteadyTime when) : when_(when) {}
  static Deadline After(Duration duration) {
    return Deadline(std::chrono::steady_clock::now() + duration);
  }

  SteadyTime when() const { return when_; }
  bool has_passed() const { return std::chrono::steady_clock::now() >= when_; }
  // Zero once the deadline has passed.
  Duration remaining() const {
    const Duration left = when_ - std::chrono::steady_clock::now();
    return left < Duration::zero() ? Duration::zero() : left;
  }

 private:
  SteadyTime when_;
};

// Seconds, the unit of metrics and reports.
inline double ToSeconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

inline Duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace pushpull
