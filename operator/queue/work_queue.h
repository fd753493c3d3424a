// SPDX-License-Identifier: Apache-2.0
//
// The queue between those that see changes and the threads that act on them. Keys only: who takes
// one looks at the state as it is then. The promises are those of queue_core.h.
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
  // Work on the key has failed: adds it after a delay that grows with each failure until Forget.
  // Returns how many there were in a row, this one included.
  int AddAfterFailure(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);
  // Work on the key has succeeded.
  void Forget(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);

  // Blocks for the next key. Every key that is taken is given back with Done, also after a failure.
  //
  // kCancelled          shut down, and nothing is left.
  // kDeadlineExceeded   nothing was ready in time.
  absl::StatusOr<std::string> Take(pushpull::Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);
  void Done(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_);

  // From now on nothing is added; delayed keys are dropped.
  void ShutDown() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits after ShutDown until everything was handed out and done. kDeadlineExceeded.
  absl::Status AwaitDrained(pushpull::Deadline deadline) ABSL_LOCKS_EXCLUDED(mu_);

  // Keys that are ready, for a metric.
  size_t depth() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // When a waiting thread has to look again by itself.
  pushpull::Deadline NextLook(pushpull::Deadline deadline) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const pushpull::TimeSource& time_;
  mutable pushpull::Mutex mu_;
  pushpull::CondVar changed_;
  QueueCore core_ ABSL_GUARDED_BY(mu_);
  KeyBackoff backoff_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull_operator
