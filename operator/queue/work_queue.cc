// SPDX-License-Identifier: Apache-2.0
#include "operator/queue/work_queue.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace pushpull_operator {

using pushpull::Deadline;
using pushpull::Duration;
using pushpull::MutexLock;

void WorkQueue::Add(const std::string& key) {
  MutexLock lock(mu_);
  core_.Add(key);
  changed_.NotifyOne();
}

void WorkQueue::AddAfter(const std::string& key, Duration delay) {
  MutexLock lock(mu_);
  core_.AddAt(key, time_.Now() + delay);
  // Waiters may have to wake up earlier.
  changed_.NotifyAll();
}

int WorkQueue::AddRateLimited(const std::string& key) {
  MutexLock lock(mu_);
  core_.AddAt(key, time_.Now() + backoff_.Failed(key));
  changed_.NotifyAll();
  return backoff_.failures(key);
}

void WorkQueue::Forget(const std::string& key) {
  MutexLock lock(mu_);
  backoff_.Forget(key);
}

Deadline WorkQueue::NextWakeUp(Deadline deadline) const {
  const std::optional<pushpull::SteadyTime> due = core_.next_due();
  if (!due.has_value()) return deadline;
  const Deadline at_due = Deadline::After(std::max(*due - time_.Now(), Duration::zero()));
  return at_due.when() < deadline.when() ? at_due : deadline;
}

absl::StatusOr<std::string> WorkQueue::Take(Deadline deadline) {
  MutexLock lock(mu_);
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

void WorkQueue::Done(const std::string& key) {
  MutexLock lock(mu_);
  core_.Done(key);
  // The key may be ready again, or the queue drained.
  changed_.NotifyAll();
}

void WorkQueue::ShutDown() {
  MutexLock lock(mu_);
  core_.ShutDown();
  changed_.NotifyAll();
}

absl::Status WorkQueue::AwaitDrained(Deadline deadline) {
  MutexLock lock(mu_);
  while (!core_.is_drained()) {
    if (!changed_.WaitUntil(mu_, deadline) && !core_.is_drained()) {
      return absl::DeadlineExceededError("the work queue still has keys queued or in processing");
    }
  }
  return absl::OkStatus();
}

size_t WorkQueue::depth() const {
  MutexLock lock(mu_);
  return core_.depth();
}

}  // namespace pushpull_operator
