// SPDX-License-Identifier: Apache-2.0
//
// Ends a rank's calls from another thread: the current one and all that follow, until Clear.
#pragma once

#include <atomic>

#include "runtime/base/file_descriptor.h"

namespace pushpull {

// Thread-safe. Outlives the calls that use it.
class Interrupt {
 public:
  Interrupt();

  void Set();
  // Requires that no call is in progress.
  void Clear();
  bool is_set() const { return is_set_.load(std::memory_order_relaxed); }
  // Readable while it is set, for poll.
  int descriptor() const { return event_.get(); }

 private:
  FileDescriptor event_;  // an eventfd
  std::atomic<bool> is_set_ = false;
};

}  // namespace pushpull
