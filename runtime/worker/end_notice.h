// SPDX-License-Identifier: Apache-2.0
//
// Handles SIGTERM for a worker's program that does not. Without a handler it would terminate the
// program in the middle of a step, and the first process of a container would not receive it at
// all.
#pragma once

#include <functional>
#include <memory>

#include "runtime/base/event_loop.h"
#include "runtime/base/file_descriptor.h"

namespace pushpull {

// While one of these exists the first SIGTERM is a notice, and a second one terminates the process
// at once, with 143; so does a first one that is marked as urgent (kUrgent). No effect if the
// program handles, ignores or blocks the signal.
//
// Thread-compatible; several may exist at a time.
class EndNotice {
 public:
  // Calls `on_notice` on the loop, once, also for a notice that came earlier. The loop outlives
  // this object, or has been stopped.
  EndNotice(EventLoop& loop, std::function<void()> on_notice);
  ~EndNotice();
  EndNotice(const EndNotice&) = delete;
  EndNotice& operator=(const EndNotice&) = delete;

 private:
  EventLoop& loop_;
  // Of its own: a loop watches a descriptor once, and several of these may be on one loop.
  std::shared_ptr<const FileDescriptor> event_;
};

}  // namespace pushpull
