// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/end_notice.h"

#include <unistd.h>

#include <csignal>
#include <functional>
#include <optional>

#include <gtest/gtest.h>

#include "runtime/base/mutex.h"
#include "runtime/base/signals.h"

namespace pushpull {
namespace {

constexpr int kWasTold = 7;
constexpr int kWasNotTold = 8;
constexpr int kOwnHandler = 9;

void EndByOwnHandler(int /*signal*/) {
  _exit(kOwnHandler);
}

// Each test is in a process of its own, since signals belong to the whole process.
class EndNoticeTest : public testing::Test {
 protected:
  EndNoticeTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  // As a program whose job has such a notice, and to which `send` sends signals. Ends with kWasTold
  // when the notice has come.
  [[noreturn]] static void RunProgram(const std::function<void()>& send) {
    EventLoop loop("loop");
    Mutex mu;
    CondVar changed;
    bool was_told = false;
    const EndNotice notice(loop, [&] {
      MutexLock lock(mu);
      was_told = true;
      changed.NotifyAll();
    });
    send();
    const Deadline deadline = Deadline::After(std::chrono::seconds(10));
    MutexLock lock(mu);
    while (!was_told) {
      if (!changed.WaitUntil(mu, deadline)) break;
    }
    _exit(was_told ? kWasTold : kWasNotTold);
  }
};

TEST_F(EndNoticeTest, HandlesSigtermIfTheProgramDoesNot) {
  EXPECT_EXIT(RunProgram([] { raise(SIGTERM); }), testing::ExitedWithCode(kWasTold), "");
}

TEST_F(EndNoticeTest, SecondSignalTerminatesTheProgram) {
  EXPECT_EXIT(RunProgram([] {
                raise(SIGTERM);
                raise(SIGTERM);
              }),
              testing::ExitedWithCode(143),
              "");
}

TEST_F(EndNoticeTest, UrgentSignalTerminatesAtOnce) {
  EXPECT_EXIT(RunProgram([] {
                sigval word{};
                word.sival_int = kUrgent;
                sigqueue(getpid(), SIGTERM, word);
              }),
              testing::ExitedWithCode(143),
              "");
}

TEST_F(EndNoticeTest, KeepsTheProgramsOwnHandler) {
  EXPECT_EXIT(
      {
        std::signal(SIGTERM, EndByOwnHandler);
        RunProgram([] { raise(SIGTERM); });
      },
      testing::ExitedWithCode(kOwnHandler),
      "");
}

TEST_F(EndNoticeTest, SignalTerminatesTheProgramOnceJobIsGone) {
  EXPECT_EXIT(
      {
        EventLoop loop("loop");
        std::optional<EndNotice> first(std::in_place, loop, [] {});
        {
          const EndNotice second(loop, [] {});
        }
        first.reset();
        raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM),
      "");
}

TEST_F(EndNoticeTest, EveryJobOfALoopReceivesTheNotice) {
  EXPECT_EXIT(
      {
        EventLoop loop("loop");
        Mutex mu;
        CondVar changed;
        int told = 0;
        const auto on_notice = [&] {
          MutexLock lock(mu);
          ++told;
          changed.NotifyAll();
        };
        const EndNotice first(loop, on_notice);
        const EndNotice second(loop, on_notice);
        raise(SIGTERM);
        const Deadline deadline = Deadline::After(std::chrono::seconds(10));
        MutexLock lock(mu);
        while (told < 2 && changed.WaitUntil(mu, deadline)) {
        }
        _exit(told == 2 ? kWasTold : kWasNotTold);
      },
      testing::ExitedWithCode(kWasTold),
      "");
}

TEST_F(EndNoticeTest, LaterJobReceivesAnEarlierNotice) {
  EXPECT_EXIT(
      {
        EventLoop loop("loop");
        const EndNotice first(loop, [] {});
        raise(SIGTERM);
        RunProgram([] {});
      },
      testing::ExitedWithCode(kWasTold),
      "");
}

}  // namespace
}  // namespace pushpull
