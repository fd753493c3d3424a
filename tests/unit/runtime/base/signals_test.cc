// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/signals.h"

#include <unistd.h>

#include <csignal>
#include <functional>

#include <gtest/gtest.h>

#include "runtime/base/mutex.h"

namespace pushpull {
namespace {

// In a process of its own, since signals belong to the whole process. `send` is called when
// signals are events.
[[noreturn]] void ExitWithTheSignal(const std::function<void()>& send) {
  BlockStopSignals();
  EventLoop loop("loop");
  Mutex mu;
  CondVar changed;
  StopSignal received;
  const StopSignals signals(loop, [&](StopSignal signal) {
    MutexLock lock(mu);
    received = signal;
    changed.NotifyAll();
  });
  kill(getpid(), SIGPIPE);  // ignored
  send();
  {
    const Deadline deadline = Deadline::After(std::chrono::seconds(10));
    MutexLock lock(mu);
    while (received.number == 0) {
      if (!changed.WaitUntil(mu, deadline)) break;
    }
  }
  loop.Stop();
  _exit(received.is_urgent ? 1 : ExitCodeOf(received.number));
}

TEST(StopSignalsTest, BecomeEventsOnTheLoop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");

  EXPECT_EXIT(ExitWithTheSignal([] { kill(getpid(), SIGINT); }), testing::ExitedWithCode(130), "");
  EXPECT_EXIT(ExitWithTheSignal([] { kill(getpid(), SIGTERM); }), testing::ExitedWithCode(143), "");
}

void SendWithWord(int word) {
  sigval value{};
  value.sival_int = word;
  sigqueue(getpid(), SIGTERM, value);
}

TEST(StopSignalsTest, OnlyTheLaunchersSignalIsUrgent) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");

  EXPECT_EXIT(ExitWithTheSignal([] { SendWithWord(kUrgent); }), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(ExitWithTheSignal([] { SendWithWord(7); }), testing::ExitedWithCode(143), "");
}

}  // namespace
}  // namespace pushpull
