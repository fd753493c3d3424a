// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/time_source.h"

namespace pushpull {
namespace {

class SystemTimeSource final : public TimeSource {
 public:
  SteadyTime Now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace

const TimeSource& SystemTime() {
  static const SystemTimeSource time;
  return time;
}

}  // namespace pushpull
