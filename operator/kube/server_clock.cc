// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/server_clock.h"

#include <string>

#include "absl/time/time.h"

namespace pushpull_operator {

using pushpull::MutexLock;
using std::chrono::sys_seconds;

namespace {

// How old a response may be on arrival, apart from the truncation of its date to seconds.
constexpr std::chrono::seconds kSlack{3};

}  // namespace

std::optional<sys_seconds> ParseHttpDate(absl::string_view text) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime("%a, %d %b %E4Y %H:%M:%S GMT", text, &time, &error)) return std::nullopt;
  return sys_seconds(std::chrono::seconds(absl::ToUnixSeconds(time)));
}

ServerClock::ServerClock(const pushpull::TimeSource& time,
                         std::chrono::system_clock::time_point first_guess)
    : time_(time), offset_(first_guess.time_since_epoch() - time.Now().time_since_epoch()) {}

// Delays only make a date look older, so the largest offset is the best estimate. A much smaller
// one means that the server, or its clock, has changed.
void ServerClock::Observe(sys_seconds date) {
  const std::chrono::nanoseconds offset = date.time_since_epoch() - time_.Now().time_since_epoch();
  MutexLock lock(mu_);
  if (!has_observed_ || offset > offset_ || offset_ - offset > kSlack) offset_ = offset;
  has_observed_ = true;
}

sys_seconds ServerClock::Now() const {
  MutexLock lock(mu_);
  return sys_seconds(
      std::chrono::floor<std::chrono::seconds>(time_.Now().time_since_epoch() + offset_));
}

}  // namespace pushpull_operator
