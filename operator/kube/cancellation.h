// SPDX-License-Identifier: Apache-2.0
//
// Ends calls that wait for the API server from another thread: a watch that lasts minutes, a pause
// before a retry.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>

#include "runtime/base/check.h"
#include "runtime/base/file_descriptor.h"

namespace pushpull_operator {

// One-shot. Thread-safe; outlives every call that it is passed to.
class Cancellation {
 public:
  Cancellation() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    PUSHPULL_CHECK(event_.is_open());
  }
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

  void Cancel() { eventfd_write(event_.get(), 1); }
  bool is_cancelled() const {
    pollfd waiting{.fd = event_.get(), .events = POLLIN, .revents = 0};
    return poll(&waiting, 1, 0) == 1;
  }
  // Readable once cancelled, for poll.
  int fd() const { return event_.get(); }

 private:
  pushpull::FileDescriptor event_;  // eventfd; never read, so it stays readable
};

}  // namespace pushpull_operator
