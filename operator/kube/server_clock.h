// SPDX-License-Identifier: Apache-2.0
//
// The API server's clock, estimated from the Date headers of its responses. Job deadlines compare
// timestamps that it wrote, so this machine's wall clock does not matter.
#pragma once

#include <chrono>
#include <optional>

#include "absl/strings/string_view.h"

#include "runtime/base/mutex.h"
#include "runtime/base/time_source.h"

namespace pushpull_operator {

// "Sun, 06 Nov 1994 08:49:37 GMT"; nothing if the text is not such a time.
std::optional<std::chrono::sys_seconds> ParseHttpDate(absl::string_view text);

// Thread-safe.
class ServerClock {
 public:
  // `time` must outlive the clock. `first_guess` is used until the first response.
  explicit ServerClock(
      const pushpull::TimeSource& time,
      std::chrono::system_clock::time_point first_guess = std::chrono::system_clock::now());

  // A response with this date has just arrived.
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
