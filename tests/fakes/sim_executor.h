// SPDX-License-Identifier: Apache-2.0
//
// Executors with a fake clock that only the test moves. All executors of one SimScheduler share its
// time and its queue of events, so a run of many nodes is reproducible.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "runtime/base/executor.h"

namespace pushpull {

class SimExecutor;

// Events run in the order of their times, and those of one time in the order in which they were
// posted. Confined to the test's thread, like its executors, which it outlives.
class SimScheduler {
 public:
  SteadyTime Now() const { return now_; }

  // Runs the next event, moving the time to it. False: there is none.
  bool RunOne();
  // Runs what is due without moving the time.
  void RunUntilIdle();
  // Runs what becomes due within `duration`, then moves the time to its end.
  void RunFor(Duration duration);
  // Moves the time and runs nothing, as a busy thread does; what is due meanwhile runs late.
  void Elapse(Duration duration) { now_ += duration; }
  // Runs events until `condition` holds. False: it did not within `limit`, or nothing is left to
  // run.
  bool RunUntil(const std::function<bool()>& condition, Duration limit);

 private:
  friend class SimExecutor;
  struct Event {
    const SimExecutor* executor;
    std::function<void()> task;
  };
  using Key = std::pair<SteadyTime, uint64_t>;

  uint64_t Add(const SimExecutor& executor, SteadyTime when, std::function<void()> task);
  void Remove(uint64_t sequence);
  void RemoveAll(const SimExecutor& executor);

  // Not zero, which is "never" in frames.
  SteadyTime now_{std::chrono::hours(1)};
  uint64_t next_sequence_ = 1;
  std::map<Key, Event> events_;
  std::map<uint64_t, SteadyTime> times_;  // of events_, by sequence
};

// Tasks that are still posted when it is destroyed never run.
class SimExecutor final : public Executor {
 public:
  explicit SimExecutor(SimScheduler& scheduler) : scheduler_(scheduler) {}
  ~SimExecutor() override { scheduler_.RemoveAll(*this); }
  SimExecutor(const SimExecutor&) = delete;
  SimExecutor& operator=(const SimExecutor&) = delete;

  void Post(std::function<void()> task) override {
    scheduler_.Add(*this, scheduler_.Now(), std::move(task));
  }
  TimerId RunAt(SteadyTime when, std::function<void()> task) override {
    return scheduler_.Add(*this, when, std::move(task));
  }
  void Cancel(TimerId timer) override { scheduler_.Remove(timer); }
  SteadyTime Now() const override { return scheduler_.Now(); }

  // Runs nothing for so long, as a process that was stopped: what is due meanwhile runs then.
  void Stop(Duration duration) { stopped_until_ = scheduler_.Now() + duration; }
  bool is_stopped() const { return scheduler_.Now() < stopped_until_; }

 private:
  friend class SimScheduler;

  SimScheduler& scheduler_;
  SteadyTime stopped_until_{};
};

}  // namespace pushpull
