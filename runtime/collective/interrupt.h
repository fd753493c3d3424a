// SPDX-License-Identifier: Apache-2.0
//
// Ends the calls of a rank from another thread: those under way and all that follow, until Clear.
#pragma once

#include <atomic>

#include "runtime/base/file_descriptor.h"

namespace pushpull {

// Thread-safe. Outlives the calls that look at it.
class Interrupt {
 public:
  Interrupt();

  void Set();
  // No call is under way.
  void Clear();
  bool is_set() const { return is_set_.load(std::memory_order_relaxed); }
  // Readable while it is set, for poll.
  int descriptor() const { return event_.get(); }

 private:
  FileDescriptor event_;  // an eventfd
  std::atomic<bool> is_set_ = false;
};

}  // namespace pushpull
