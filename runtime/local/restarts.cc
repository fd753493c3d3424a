// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/restarts.h"

#include <utility>

namespace pushpull {

ExitDecision Restarts::Decide(const MemberProcess& member, const ProcessEnd& end) {
  int& in_a_row = in_a_row_[member.name()];
  ExitDecision decision = DecideAfterExit(
      spec_,
      {.role = member.role(),
       .exit_code = end.exit_code,
       .signal = end.signal,
       .ran_for = std::chrono::duration_cast<std::chrono::seconds>(member.SinceStart())},
      {.counted = counted_, .in_a_row = in_a_row});
  counted_ = decision.history.counted;
  in_a_row = decision.history.in_a_row;
  const bool restarts =
      decision.action == ExitAction::kRestartPod || decision.action == ExitAction::kRestartJob;
  count_ += restarts ? 1 : 0;
  return decision;
}

void Restarts::RunAfter(const std::string& name, Duration delay, std::function<void()> then) {
  Executor::TimerId& timer = timers_[name];
  loop_.Cancel(timer);
  timer = loop_.RunAfter(delay, std::move(then));
}

void Restarts::Cancel() {
  for (const auto& [name, timer] : timers_) loop_.Cancel(timer);
  timers_.clear();
}

}  // namespace pushpull
