// SPDX-License-Identifier: Apache-2.0
//
// SIGINT and SIGTERM as events on a loop.
#pragma once

#include <functional>
#include <memory>

#include "runtime/base/event_loop.h"
#include "runtime/base/file_descriptor.h"

namespace pushpull {

// Blocks SIGINT and SIGTERM in the calling thread and all threads that it starts from now on, and
// ignores SIGPIPE and SIGXFSZ, so that system calls return errors instead. Called first in main,
// before any thread exists.
void BlockStopSignals();

// The value that a launcher sends with SIGTERM (sigqueue) when it tears its job down: the process
// ends without cleaning up first. A plain SIGTERM, from kill or Kubernetes, lets it finish its
// work.
inline constexpr int kUrgent = 0x50505550;

struct StopSignal {
  int number = 0;
  bool is_urgent = false;
};

// Calls `on_signal` on the loop for every SIGINT and SIGTERM. Created and destroyed by the main
// thread. The loop outlives it; it may be stopped before this object is destroyed.
class StopSignals {
 public:
  StopSignals(EventLoop& loop, std::function<void(StopSignal)> on_signal);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  EventLoop& loop_;
  // Also held by the loop's handler.
  const std::shared_ptr<FileDescriptor> signals_;
};

// For a command that has nothing else to do: blocks for `duration`, or until SIGINT or SIGTERM,
// which it returns; 0: neither came. Call it after BlockStopSignals.
int AwaitStopSignal(Duration duration);

// The exit code of a program that ended in order because of a signal: 130 or 143.
constexpr int ExitCodeOf(int signal) {
  return 128 + signal;
}

}  // namespace pushpull
