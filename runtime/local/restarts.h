// SPDX-License-Identifier: Apache-2.0
//
// The restarts of a local job: counts them towards spec.restart.backoffLimit, and holds back what
// has to wait, by member.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "runtime/base/event_loop.h"
#include "runtime/job/restart_policy.h"
#include "runtime/local/member_table.h"

namespace pushpull {

// Thread-confined to the loop.
class Restarts {
 public:
  Restarts(const RestartSpec& spec, EventLoop& loop) : spec_(spec), loop_(loop) {}
  ~Restarts() { Cancel(); }
  Restarts(const Restarts&) = delete;
  Restarts& operator=(const Restarts&) = delete;

  int count() const { return count_; }
  // What to do after the end of a member's process; a restart counts.
  ExitDecision Decide(const MemberProcess& member, const ProcessEnd& end) {
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
  // Calls `then` after `delay`, in place of what was to be called for this member.
  void RunAfter(const std::string& name, Duration delay, std::function<void()> then) {
    Executor::TimerId& timer = timers_[name];
    loop_.Cancel(timer);
    timer = loop_.RunAfter(delay, std::move(then));
  }
  // A member of this name starts without a history.
  void Forget(const std::string& name) { in_a_row_.erase(name); }
  // Drops all that waits.
  void Cancel() {
    for (const auto& [name, timer] : timers_) loop_.Cancel(timer);
    timers_.clear();
  }

 private:
  const RestartSpec& spec_;
  EventLoop& loop_;
  int count_ = 0;
  int counted_ = 0;                      // towards backoffLimit
  std::map<std::string, int> in_a_row_;  // by member, since it was last healthy
  std::map<std::string, Executor::TimerId> timers_;
};

}  // namespace pushpull
