// SPDX-License-Identifier: Apache-2.0
//
// Ends calls that wait for the API server from another thread: a watch that lasts minutes, a pause
// before a retry.
#pragma once

#include "runtime/base/file_descriptor.h"

namespace pushpull_operator {

// One-shot. Thread-safe; outlives every call that it is passed to.
class Cancellation {
 public:
  Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  void Cancel();
  bool is_cancelled() const;
  // Readable once cancelled, for poll.
  int fd() const { return event_.get(); }

 private:
  pushpull::FileDescriptor event_;  // eventfd; never read, so it stays readable
};

}  // namespace pushpull_operator
