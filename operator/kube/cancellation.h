// SPDX-License-Identifier: Apache-2.0
//
// Ends calls that wait for the API server from another thread: a watch that would last for minutes,
// a pause before the next try.
#pragma once

#include "runtime/base/file_descriptor.h"

namespace pushpull_operator {

// Once cancelled, for good. Thread-safe; outlives every call that it was given to.
class Cancellation {
 public:
  Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  void Cancel();
  bool is_cancelled() const;
  // Readable from the moment of Cancel, for poll.
  int fd() const { return event_.get(); }

 private:
  pushpull::FileDescriptor event_;  // eventfd; nobody reads it, so it stays readable
};

}  // namespace pushpull_operator
