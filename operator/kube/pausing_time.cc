// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/pausing_time.h"

#include <poll.h>

#include <algorithm>
#include <chrono>

namespace pushpull_operator {
namespace {

using pushpull::SteadyTime;

class SystemTime final : public PausingTime {
 public:
  SteadyTime Now() const override { return std::chrono::steady_clock::now(); }

  bool PauseUntil(SteadyTime when, const Cancellation& cancellation) override {
    const pushpull::Deadline deadline(when);
    pollfd waiting{.fd = cancellation.fd(), .events = POLLIN, .revents = 0};
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
      const auto longest = std::chrono::milliseconds(std::chrono::hours(1));
      if (poll(&waiting, 1, static_cast<int>(std::min(left, longest).count())) == 1) return false;
      if (deadline.has_passed()) return true;
    }
  }
};

}  // namespace

PausingTime& SystemPausingTime() {
  static SystemTime time;
  return time;
}

}  // namespace pushpull_operator
