// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/stop_sequence.h"

#include <utility>

namespace pushpull {

bool StopSequence::Begin(std::vector<StopStage> stages) {
  stages_ = std::move(stages);
  is_requested_ = false;
  return Advance();
}

bool StopSequence::Advance() {
  while (!stages_.empty()) {
    const std::vector<const MemberProcess*> running = running_(stages_.front().roles);
    if (running.empty()) {
      stages_.erase(stages_.begin());
      is_requested_ = false;
      continue;
    }
    if (std::exchange(is_requested_, true)) return false;
    for (const MemberProcess* member : running) member->RequestEnd();
    loop_.Cancel(kill_timer_);
    kill_timer_ = loop_.RunAfter(stages_.front().grace, [this] {
      for (const MemberProcess* member : running_(stages_.front().roles)) member->KillGroup();
    });
    return false;
  }
  loop_.Cancel(kill_timer_);
  return true;
}

}  // namespace pushpull
