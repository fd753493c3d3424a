// SPDX-License-Identifier: Apache-2.0
//
// The project's only lock: std::mutex with the annotations of Clang's thread-safety analysis. Not
// absl::Mutex: Debian's build of it is not instrumented, so the thread sanitizer reports false
// races (docs/architecture.md section 10).
#pragma once

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"

#include "pushpull/deadline.h"

#include "runtime/base/check.h"

namespace pushpull {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits happen in the caller's own loop around the condition, where the analysis sees the lock
// held:
//
//   while (!done_) {
//     if (!changed_.WaitUntil(mu_, deadline)) return absl::DeadlineExceededError(...);
//   }
class CondVar {
 public:
  // False when the deadline has passed; the condition must be checked once more either way.
  bool WaitUntil(Mutex& mutex, Deadline deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = condition_.wait_until(lock, deadline.when());
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

// A wait for something that a working process does at once. If it has not happened after half a
// minute, the process is broken and continuing could read freed memory: aborts. Counts seconds one
// by one, so that time during which the process is stopped (SIGSTOP) does not count.
//
//   for (BriefWait wait; count_ > 0;) wait.Continue(changed_, mu_);
class BriefWait {
 public:
  void Continue(CondVar& changed, Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!changed.WaitUntil(mutex, Deadline::After(std::chrono::seconds(1)))) ++num_seconds_;
    PUSHPULL_CHECK(num_seconds_ < 30);
  }

 private:
  int num_seconds_ = 0;
};

}  // namespace pushpull
