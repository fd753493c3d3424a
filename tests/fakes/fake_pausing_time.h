// SPDX-License-Identifier: Apache-2.0
//
// A clock that stands still until a test moves it or somebody pauses: a pause takes no time and
// moves the clock to its end.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "operator/kube/pausing_time.h"
#include "runtime/base/mutex.h"

namespace pushpull_operator {

// Thread-safe.
class FakePausingTime final : public PausingTime {
 public:
  pushpull::SteadyTime Now() const override ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    return now_;
  }

  bool PauseUntil(pushpull::SteadyTime when, const Cancellation& cancellation) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    if (cancellation.is_cancelled()) return false;
    std::function<void()> on_pause;
    {
      pushpull::MutexLock lock(mu_);
      pauses_.push_back(when - now_);
      now_ = std::max(now_, when);
      on_pause = on_pause_;
    }
    if (on_pause) on_pause();
    return !cancellation.is_cancelled();
  }

  // Called at the end of each pause, on the thread that pauses: where a test changes the world.
  void OnPause(std::function<void()> on_pause) ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    on_pause_ = std::move(on_pause);
  }

  void Advance(pushpull::Duration duration) ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    now_ += duration;
  }

  // How long each pause was, in order.
  std::vector<pushpull::Duration> pauses() const ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    return pauses_;
  }

 private:
  mutable pushpull::Mutex mu_;
  pushpull::SteadyTime now_ ABSL_GUARDED_BY(mu_){std::chrono::seconds(1000)};
  std::vector<pushpull::Duration> pauses_ ABSL_GUARDED_BY(mu_);
  std::function<void()> on_pause_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
