// SPDX-License-Identifier: Apache-2.0
//
// The work queue between the watches and the worker threads. It carries keys only: a worker reads
// the current state. The guarantees are those of queue_core.h.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "operator/queue/backoff.h"
#include "operator/queue/queue_core.h"
#include "runtime/base/mutex.h"
#include "runtime/base/time_source.h"

namespace pushpull_operator {

// Thread-safe.
class WorkQueue {
 public:
  // `time` must outlive the queue.
  explicit WorkQueue(const pushpull::TimeSource& time, BackoffTimes backoff = {})
      : time_(time), backoff_(backoff) {}
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void Add(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    core_.Add(key);
    changed_.NotifyOne();
  }
  void AddAfter(const std::string& key, pushpull::Duration delay) ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    core_.AddAt(key, time_.Now() + delay);
    // Waiters may have to wake up earlier.
    changed_.NotifyAll();
  }
  // Requeues a failed key with a backoff that grows until Forget. Returns the number of failures in
  // a row, this one included.
  int AddRateLimited(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    core_.AddAt(key, time_.Now() + backoff_.Failed(key));
    changed_.NotifyAll();
    return backoff_.failures(key);
  }
  // Resets the key's backoff, after a success.
  void Forget(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    backoff_.Forget(key);
  }

  // Blocks for the next key. Call Done for every key taken, also after a failure.
  //
  //   kCancelled         shut down and drained
  //   kDeadlineExceeded  nothing was ready in time
  absl::StatusOr<std::string> Take(pushpull::Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    for (;;) {
      if (std::optional<std::string> key = core_.Take(time_.Now()); key.has_value()) {
        // Delayed keys may have become ready together.
        if (core_.has_ready()) changed_.NotifyOne();
        return *std::move(key);
      }
      // A key in processing may have to be handed out again, so the queue is not drained yet.
      if (core_.is_drained()) return absl::CancelledError("the work queue is shut down");
      if (deadline.has_passed()) return absl::DeadlineExceededError("no key within the deadline");
      changed_.WaitUntil(mu_, NextWakeUp(deadline));
    }
  }
  void Done(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    core_.Done(key);
    // The key may be ready again, or the queue drained.
    changed_.NotifyAll();
  }

  // Rejects further keys and drops delayed ones.
  void ShutDown() ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    core_.ShutDown();
    changed_.NotifyAll();
  }
  // Waits after ShutDown until every key is done. kDeadlineExceeded.
  absl::Status AwaitDrained(pushpull::Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    while (!core_.is_drained()) {
      if (!changed_.WaitUntil(mu_, deadline) && !core_.is_drained()) {
        return absl::DeadlineExceededError("the work queue still has keys queued or in processing");
      }
    }
    return absl::OkStatus();
  }

  // Number of ready keys, for a metric.
  size_t depth() const ABSL_LOCKS_EXCLUDED(mu_) {
    pushpull::MutexLock lock(mu_);
    return core_.depth();
  }

 private:
  // When a waiting thread wakes up by itself.
  pushpull::Deadline NextWakeUp(pushpull::Deadline deadline) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::optional<pushpull::SteadyTime> due = core_.next_due();
    if (!due.has_value()) return deadline;
    const pushpull::Deadline at_due =
        pushpull::Deadline::After(std::max(*due - time_.Now(), pushpull::Duration::zero()));
    return at_due.when() < deadline.when() ? at_due : deadline;
  }

  const pushpull::TimeSource& time_;
  mutable pushpull::Mutex mu_;
  pushpull::CondVar changed_;
  QueueCore core_ ABSL_GUARDED_BY(mu_);
  KeyBackoff backoff_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
