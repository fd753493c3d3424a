// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/coordinator_backoff.h"

#include <algorithm>

namespace pushpull_operator {

void CoordinatorBackoff::OnTimeout(const std::string& pod_uid, WallTime now) {
  pause_ = pod_uid == silent_uid_ ? std::min(2 * pause_, kPauseMax) : kPauseMin;
  silent_uid_ = pod_uid;
  ask_at_ = now + pause_;
}

}  // namespace pushpull_operator
