// SPDX-License-Identifier: Apache-2.0
//
// One thread of control that runs closures in order and at given times. Every object that handles
// events (channels, server lanes, sessions) is confined to one executor, so it needs no lock. Two
// implementations: EventLoop (a thread around epoll) and tests/fakes/sim_executor.h (a fake clock).
#pragma once

#include <cstdint>
#include <functional>

#include "pushpull/deadline.h"

namespace pushpull {

class Executor {
 public:
  using TimerId = uint64_t;
  virtual ~Executor() = default;

  // Runs `task` once on the executor's thread, after all tasks posted before it. Thread-safe, never
  // blocks. After the executor has stopped the task is dropped.
  virtual void Post(std::function<void()> task) = 0;

  // Runs `task` at `when` or soon after. Called on the executor's thread only.
  virtual TimerId RunAt(SteadyTime when, std::function<void()> task) = 0;

  // The timer's task will not run after this call. Ids of timers that have run are ignored. Called
  // on the executor's thread only.
  virtual void Cancel(TimerId timer) = 0;

  virtual SteadyTime Now() const = 0;

  TimerId RunAfter(Duration delay, std::function<void()> task) {
    return RunAt(Now() + delay, std::move(task));
  }
};

}  // namespace pushpull
