// SPDX-License-Identifier: Apache-2.0
//
// The work queue between the watches and the worker threads. It carries keys only: a worker reads
// the current state. The guarantees are those of queue_core.h.
#pragma once

#include <string>

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

  void Add(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);
  void AddAfter(const std::string& key, pushpull::Duration delay) ABSL_LOCKS_EXCLUDED(mu_);
  // Requeues a failed key with a backoff that grows until Forget. Returns the number of failures in
  // a row, this one included.
  int AddRateLimited(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);
  // Resets the key's backoff, after a success.
  void Forget(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);

  // Blocks for the next key. Call Done for every key taken, also after a failure.
  //
  //   kCancelled         shut down and drained
  //   kDeadlineExceeded  nothing was ready in time
  absl::StatusOr<std::string> Take(pushpull::Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);
  void Done(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);

  // Rejects further keys and drops delayed ones.
  void ShutDown() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits after ShutDown until every key is done. kDeadlineExceeded.
  absl::Status AwaitDrained(pushpull::Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);

  // Number of ready keys, for a metric.
  size_t depth() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // When a waiting thread wakes up by itself.
  pushpull::Deadline NextWakeUp(pushpull::Deadline deadline) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const pushpull::TimeSource& time_;
  mutable pushpull::Mutex mu_;
  pushpull::CondVar changed_;
  QueueCore core_ ABSL_GUARDED_BY(mu_);
  KeyBackoff backoff_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
