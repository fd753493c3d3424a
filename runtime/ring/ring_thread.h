// SPDX-License-Identifier: Apache-2.0
//
// The thread on which a worker makes its collective calls, which block: one task at a time, so that
// the executor stays free for messages.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"

#include "runtime/base/executor.h"
#include "runtime/base/mutex.h"
#include "runtime/collective/interrupt.h"

namespace pushpull {

// Owns one thread, "pp-ring". Confined to the executor, constructor and destructor included.
class RingThread {
 public:
  using Task = std::function<absl::Status()>;
  using Done = std::function<void(const absl::Status&)>;

  // `executor` outlives this object.
  explicit RingThread(Executor& executor);
  // Interrupts the task under way and waits for it to end; its `done` is not called.
  ~RingThread();
  RingThread(const RingThread&) = delete;
  RingThread& operator=(const RingThread&) = delete;

  // Runs `task` on the thread, then `done` with its result on the executor. Tasks end soon after
  // interrupt() is set. None may be under way.
  void Start(Task task, Done done) ABSL_LOCKS_EXCLUDED(mu_);
  bool is_busy() const { return is_busy_; }
  // Start clears it.
  const Interrupt& interrupt() const { return interrupt_; }
  // Ends the task under way, if any.
  void Stop() { interrupt_.Set(); }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void Finish(const absl::Status& status);

  Executor& executor_;
  Interrupt interrupt_;
  bool is_busy_ = false;
  Done done_;
  const std::shared_ptr<RingThread*> self_;  // expires with this object, for posted tasks
  Mutex mu_;
  CondVar changed_;
  Task task_ ABSL_GUARDED_BY(mu_);
  bool is_ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace pushpull
