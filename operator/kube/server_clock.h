// SPDX-License-Identifier: Apache-2.0
//
// What time it is for the API server, from the Date of its answers. Deadlines of jobs compare times
// that it has stamped, so this machine's own clock does not matter, however wrong it is.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "absl/strings/string_view.h"

#include "runtime/base/mutex.h"
#include "runtime/base/time_source.h"

namespace pushpull_operator {

// "Sun, 06 Nov 1994 08:49:37 GMT". Nothing where the text is no such time.
std::optional<std::chrono::sys_seconds> ParseHttpDate(absl::string_view text);

// Thread-safe.
class ServerClock {
 public:
  // `time` must outlive the clock. Before the first answer `first_guess` counts.
  explicit ServerClock(
      const pushpull::TimeSource& time,
      std::chrono::system_clock::time_point first_guess = std::chrono::system_clock::now());

  // An answer with this date has just come.
  void Observe(std::chrono::sys_seconds date) ABSL_LOCKS_EXCLUDED(mu_);
  std::chrono::sys_seconds Now() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const pushpull::TimeSource& time_;
  mutable pushpull::Mutex mu_;
  bool has_observed_ ABSL_GUARDED_BY(mu_) = false;
  // Wall time at the steady clock's zero.
  std::chrono::nanoseconds offset_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
