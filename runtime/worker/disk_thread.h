// SPDX-License-Identifier: Apache-2.0
//
// A thread for calls that block on a disk, where POSIX has no deadlines: its owner may end while
// the disk hangs.
#pragma once

#include <functional>
#include <memory>

#include "pushpull/deadline.h"

#include "runtime/base/executor.h"
#include "runtime/base/mutex.h"

namespace pushpull {

// Owns one thread, "pp-checkpoint", started by the first task. Confined to the executor.
class DiskThread {
 public:
  // Runs on the thread; what it returns runs on the executor then. It may run longer than this
  // object and the executor live, so it owns all that it uses.
  using Task = std::function<std::function<void()>()>;

  // `executor` outlives this object. `patience`: how long the destructor waits.
  explicit DiskThread(Executor& executor, Duration patience = std::chrono::seconds(5));
  // Waits for the task under way; one that takes longer continues alone, and its result is dropped.
  ~DiskThread();
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;

  // Starts `task` after the one under way, in place of another that waits for that.
  void Start(Task task);

 private:
  // Owned by the thread too. The executor is there until `is_ending`.
  struct Shared {
    explicit Shared(Executor& results) : executor(results) {}

    Executor& executor;
    Mutex mu;
    CondVar changed;
    Task next ABSL_GUARDED_BY(mu);
    bool is_ending ABSL_GUARDED_BY(mu) = false;
    bool has_ended ABSL_GUARDED_BY(mu) = false;
  };

  static void Run(Shared& shared);
  // None: the owner ends.
  static Task Next(Shared& shared);

  const Duration patience_;
  const std::shared_ptr<Shared> shared_;
  bool has_thread_ = false;
};

}  // namespace pushpull
