// SPDX-License-Identifier: Apache-2.0
//
// Handles SIGTERM for worker programs that do not. Without a handler it would terminate the program
// in the middle of a step, and the first process of a container would not receive it at all.
#pragma once

#include <functional>
#include <memory>

#include "runtime/base/event_loop.h"
#include "runtime/base/file_descriptor.h"

namespace pushpull {

// While an EndNotice exists, the first SIGTERM is a notice and the second terminates the process at
// once, with exit code 143; so does a first one that is marked as urgent (kUrgent). No effect if
// the program handles, ignores or blocks the signal.
//
// Thread-compatible; several may exist at once.
class EndNotice {
 public:
  // Calls `on_notice` on the loop, once, even for a notice that arrived earlier. The loop outlives
  // this object, or has been stopped.
  EndNotice(EventLoop& loop, std::function<void()> on_notice);
  ~EndNotice();
  EndNotice(const EndNotice&) = delete;
  EndNotice& operator=(const EndNotice&) = delete;

  // For a process that was just forked: SIGTERM ends it again, and no longer notifies its parent,
  // whose objects must not be used. A job that it joins itself has a notice of its own.
  static void LeaveToParent();

 private:
  EventLoop& loop_;
  // One per object: a loop watches a descriptor once, and several of these may share a loop.
  std::shared_ptr<const FileDescriptor> event_;
};

}  // namespace pushpull
