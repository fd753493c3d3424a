// SPDX-License-Identifier: Apache-2.0
//
// SIGTERM to a worker's program, where the program leaves it to the library. Without a handler it
// would end the program in the middle of a step; and the first process of a container would not
// even get it.
#pragma once

#include <functional>

#include "runtime/base/event_loop.h"

namespace pushpull {

// While one of these exists SIGTERM is a notice, and a second one ends the process at once, with
// 143; so does the first where the sender says that there is no time (kUrgent). A program that has
// set a handler of its own, ignores or blocks the signal keeps what it has.
//
// Thread-compatible; several may exist at a time.
class EndNotice {
 public:
  // Calls `on_notice` on the loop, once, also where the notice has come before. The loop outlives
  // this object, or has been stopped.
  EndNotice(EventLoop& loop, std::function<void()> on_notice);
  ~EndNotice();
  EndNotice(const EndNotice&) = delete;
  EndNotice& operator=(const EndNotice&) = delete;

 private:
  EventLoop& loop_;
};

}  // namespace pushpull
