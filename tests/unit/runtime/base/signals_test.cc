// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/signals.h"

#include <unistd.h>

#include <csignal>

#include <gtest/gtest.h>

#include "runtime/base/mutex.h"

namespace pushpull {
namespace {

// In a process of its own, since signals belong to the whole process.
[[noreturn]] void ExitWithTheSignalSent(int signal) {
  BlockStopSignals();
  EventLoop loop("loop");
  Mutex mu;
  CondVar changed;
  int received = 0;
  const StopSignals signals(loop, [&](int number) {
    MutexLock lock(mu);
    received = number;
    changed.NotifyAll();
  });
  kill(getpid(), SIGPIPE);  // ignored
  kill(getpid(), signal);
  {
    const Deadline deadline = Deadline::After(std::chrono::seconds(10));
    MutexLock lock(mu);
    while (received == 0) {
      if (!changed.WaitUntil(mu, deadline)) break;
    }
  }
  loop.Stop();
  _exit(ExitCodeOf(received));
}

TEST(StopSignalsTest, BecomeEventsOnTheLoop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");

  EXPECT_EXIT(ExitWithTheSignalSent(SIGINT), testing::ExitedWithCode(130), "");
  EXPECT_EXIT(ExitWithTheSignalSent(SIGTERM), testing::ExitedWithCode(143), "");
}

}  // namespace
}  // namespace pushpull
