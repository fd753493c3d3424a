// SPDX-License-Identifier: Apache-2.0
//
// What follows the ends of a local job's members: counts restarts towards spec.restart.backoffLimit
// and delays them, by member, and keeps the workers without which the job goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/event_loop.h"
#include "runtime/base/ids.h"
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
  // Workers without which the job goes on, and why.
  const std::map<WorkerId, std::string>& left_out() const { return left_out_; }
  // Forgets those from `desired` on, and returns their names: later ones may join.
  std::vector<std::string> ForgetLeftOutFrom(uint32_t desired) {
    std::vector<std::string> names;
    while (!left_out_.empty() && left_out_.rbegin()->first.value() >= desired) {
      names.push_back(ToString(left_out_.rbegin()->first));
      Forget(names.back());
      left_out_.erase(std::prev(left_out_.end()));
    }
    return names;
  }
  // What to do after the end of a member; counts a restart.
  ExitDecision Decide(const std::string& name, const MemberExit& exit) {
    RestartHistory& history = histories_[name];
    history.job_counted = job_counted_;
    ExitDecision decision = DecideAfterExit(spec_, exit, history, EndsOfOtherWorkers(name));
    history = decision.history;
    job_counted_ = history.job_counted;
    if (decision.action == ExitAction::kRestartJob) ForgetEnds();
    if (decision.action == ExitAction::kIgnore && exit.role == JobRole::kWorker) {
      left_out_[WorkerId{static_cast<uint32_t>(exit.index)}] =
          absl::StrCat(decision.text, exit.line.empty() ? "" : ": ", exit.line);
    }
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
  std::vector<std::string> EndsOfOtherWorkers(const std::string& name) const {
    std::vector<std::string> ends;
    for (const auto& [other, history] : histories_) {
      if (other != name) ends.push_back(history.last_end);  // empty for other roles
    }
    return ends;
  }
  void ForgetEnds() {
    left_out_.clear();
    for (auto& [name, history] : histories_) {
      history.last_end.clear();
      history.alike = 0;
    }
  }

  const RestartSpec& spec_;
  EventLoop& loop_;
  int count_ = 0;
  int job_counted_ = 0;                              // of all members at once
  std::map<std::string, RestartHistory> histories_;  // by member
  std::map<WorkerId, std::string> left_out_;
  std::map<std::string, Executor::TimerId> timers_;
};

}  // namespace pushpull
