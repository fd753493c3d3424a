// SPDX-License-Identifier: Apache-2.0
//
// The restarts of a local job: counts them towards spec.restart.backoffLimit and delays them, by
// member.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "runtime/base/event_loop.h"
#include "runtime/job/restart_policy.h"

namespace pushpull {

// Thread-confined to the loop.
class Restarts {
 public:
  Restarts(const RestartSpec& spec, EventLoop& loop) : spec_(spec), loop_(loop) {}
  ~Restarts() { Cancel(); }
  Restarts(const Restarts&) = delete;
  Restarts& operator=(const Restarts&) = delete;

  int count() const { return count_; }
  // What to do after the end of a member; counts a restart.
  ExitDecision Decide(const std::string& name, const MemberExit& exit) {
    RestartHistory& history = histories_[name];
    history.job_counted = job_counted_;
    ExitDecision decision = DecideAfterExit(spec_, exit, history);
    history = decision.history;
    job_counted_ = history.job_counted;
    const bool restarts =
        decision.action == ExitAction::kRestartPod || decision.action == ExitAction::kRestartJob;
    count_ += restarts ? 1 : 0;
    return decision;
  }
  // Calls `then` after `delay`, in place of a call still pending for this member.
  void RunAfter(const std::string& name, Duration delay, std::function<void()> then) {
    Executor::TimerId& timer = timers_[name];
    loop_.Cancel(timer);
    timer = loop_.RunAfter(delay, std::move(then));
  }
  // A later member of this name starts without a history.
  void Forget(const std::string& name) { histories_.erase(name); }
  // Drops all pending calls.
  void Cancel() {
    for (const auto& [name, timer] : timers_) loop_.Cancel(timer);
    timers_.clear();
  }

 private:
  const RestartSpec& spec_;
  EventLoop& loop_;
  int count_ = 0;
  int job_counted_ = 0;                              // of all members at once
  std::map<std::string, RestartHistory> histories_;  // by member
  std::map<std::string, Executor::TimerId> timers_;
};

}  // namespace pushpull
