// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/end_notice.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <future>
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

// The loop has seen all events of before by the end of its second round.
void WaitForEvents(EventLoop& loop) {
  for (int round = 0; round < 2; ++round) {
    std::promise<void> done;
    loop.Post([&] { done.set_value(); });
    done.get_future().wait();
  }
}

// Ends with kWasNotTold if a forked process ends at its SIGTERM, without telling this one.
[[noreturn]] void RunForkedProgram(bool leaves) {
  EventLoop loop("loop");
  std::atomic<bool> was_told = false;
  const EndNotice notice(loop, [&] { was_told = true; });
  const pid_t child = fork();
  if (child == 0) {
    if (leaves) EndNotice::LeaveToParent();
    raise(SIGTERM);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  WaitForEvents(loop);
  const bool has_ended = WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
  _exit(has_ended && !was_told ? kWasNotTold : kWasTold);
}

TEST_F(EndNoticeTest, AForkedProcessEndsAtSigtermAndTellsNobody) {
  EXPECT_EXIT(RunForkedProgram(true), testing::ExitedWithCode(kWasNotTold), "");
}

// The thread sanitizer has no threads in the child of a process with threads, and delivers no
// signal that a handler raises.
#if !defined(__SANITIZE_THREAD__)
TEST_F(EndNoticeTest, AForkedProcessEndsAtSigtermFromItsFirstMoment) {
  EXPECT_EXIT(RunForkedProgram(false), testing::ExitedWithCode(kWasNotTold), "");
}

// As a program that forks before it joins.
TEST_F(EndNoticeTest, AForkedProcessMayHaveANoticeOfItsOwn) {
  EXPECT_EXIT(
      {
        EventLoop loop("loop");
        const EndNotice first(loop, [] {});
        raise(SIGTERM);
        // A sanitizer's allocator has locks, which a thread at work would leave to the child.
        WaitForEvents(loop);
        const pid_t child = fork();
        if (child == 0) {
          EndNotice::LeaveToParent();
          RunProgram([] { raise(SIGTERM); });
        }
        int status = 0;
        waitpid(child, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : kWasNotTold);
      },
      testing::ExitedWithCode(kWasTold),
      "");
}
#endif

}  // namespace
}  // namespace pushpull
