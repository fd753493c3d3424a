// SPDX-License-Identifier: Apache-2.0
//
// When to ask a coordinator again that did not answer in time: each such call keeps a worker from
// the other jobs until its deadline. Pure.
#pragma once

#include <chrono>
#include <string>

#include "operator/api/wall_time.h"

namespace pushpull_operator {

class CoordinatorBackoff {
 public:
  static constexpr std::chrono::seconds kPauseMin{4};
  static constexpr std::chrono::seconds kPauseMax{32};

  // Whether the coordinator in the pod of this uid may be asked now.
  bool MayAsk(const std::string& pod_uid, WallTime now) const {
    return pod_uid != silent_uid_ || now >= ask_at_;
  }
  void OnAnswer() { silent_uid_.clear(); }
  // The pause doubles with each timeout in a row of the same pod.
  void OnTimeout(const std::string& pod_uid, WallTime now);

 private:
  std::string silent_uid_;  // of the pod that did not answer last; empty: none
  std::chrono::seconds pause_{0};
  WallTime ask_at_{};
};

}  // namespace pushpull_operator
