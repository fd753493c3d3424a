// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/event_loop.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/mutex.h"

namespace pushpull {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

// Counts up on a loop; waited for on the test's thread.
class Counter {
 public:
  void Increment() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    ++count_;
    changed_.NotifyAll();
  }
  bool WaitFor(int count) ABSL_LOCKS_EXCLUDED(mu_) {
    const Deadline deadline = Deadline::After(seconds(10));
    MutexLock lock(mu_);
    while (count_ < count) {
      if (!changed_.WaitUntil(mu_, deadline)) return count_ >= count;
    }
    return true;
  }
  int count() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return count_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
};

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    reader = FileDescriptor(ends[0]);
    writer = FileDescriptor(ends[1]);
  }
  void Write() { EXPECT_EQ(write(writer.get(), "x", 1), 1); }
  void Drain() {
    char byte = 0;
    EXPECT_EQ(read(reader.get(), &byte, 1), 1);
  }
  FileDescriptor reader;
  FileDescriptor writer;
};

// Runs `task` on the loop and waits until it has run.
void RunOn(EventLoop& loop, const std::function<void()>& task) {
  Counter done;
  loop.Post([&] {
    task();
    done.Increment();
  });
  ASSERT_TRUE(done.WaitFor(1));
  // The counter is a local; its last user must have left it.
  Counter left;
  loop.Post([&left] { left.Increment(); });
  ASSERT_TRUE(left.WaitFor(1));
}

TEST(EventLoopTest, RunsPostedTasksInOrderOnItsThread) {
  std::vector<int> order;
  bool is_on_loop = true;
  {
    EventLoop loop("loop");
    for (int i = 0; i < 3; ++i) {
      loop.Post([&, i] {
        order.push_back(i);
        is_on_loop = is_on_loop && loop.is_loop_thread();
      });
    }
    EXPECT_FALSE(loop.is_loop_thread());
  }

  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  EXPECT_TRUE(is_on_loop);
}

TEST(EventLoopTest, TasksThatATaskPostsRunToo) {
  EventLoop loop("loop");
  Counter counter;
  std::function<void()> again = [&] {
    counter.Increment();
    if (counter.count() < 100) loop.Post(again);
  };

  loop.Post(again);

  EXPECT_TRUE(counter.WaitFor(100));
  loop.Stop();
}

TEST(EventLoopTest, TasksOfManyThreadsAllRun) {
  Counter counter;
  EventLoop loop("loop");
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) loop.Post([&] { counter.Increment(); });
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_TRUE(counter.WaitFor(4000));
  loop.Stop();
}

TEST(EventLoopTest, StopRunsPostedTasksAndDropsLaterOnes) {
  EventLoop loop("loop");
  Counter before;
  Counter after;
  for (int i = 0; i < 100; ++i) loop.Post([&] { before.Increment(); });

  loop.Stop();
  loop.Post([&] { after.Increment(); });
  loop.Stop();

  EXPECT_EQ(before.count(), 100);
  EXPECT_EQ(after.count(), 0);
}

TEST(EventLoopTest, ATaskIsDestroyedRightAfterItRan) {
  EventLoop loop("loop");
  const auto held = std::make_shared<int>(0);
  long seen_by_next = 0;

  loop.Post([copy = held] {});
  RunOn(loop, [&] { seen_by_next = held.use_count(); });

  EXPECT_EQ(seen_by_next, 1);
}

TEST(EventLoopTest, TimersRunInTheOrderOfTheirTimes) {
  EventLoop loop("loop");
  std::vector<int> order;
  Counter counter;

  loop.Post([&] {
    for (const int i : {3, 1, 2, 0}) {
      loop.RunAfter(milliseconds(i), [&, i] {
        order.push_back(i);
        counter.Increment();
      });
    }
  });

  ASSERT_TRUE(counter.WaitFor(4));
  loop.Stop();
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3));
}

// A timer that judges silence must not run before what has come.
TEST(EventLoopTest, PostedTasksRunBeforeTimersThatAreDue) {
  std::vector<std::string> ran;
  Counter done;
  EventLoop loop("test");

  loop.Post([&] {
    loop.RunAfter(milliseconds(0), [&] {
      ran.emplace_back("timer");
      done.Increment();
    });
    loop.Post([&] { ran.emplace_back("task"); });
  });

  ASSERT_TRUE(done.WaitFor(1));
  loop.Stop();
  EXPECT_THAT(ran, ElementsAre("task", "timer"));
}

TEST(EventLoopTest, ATimerDoesNotRunEarly) {
  EventLoop loop("loop");
  Counter counter;
  Duration early{0};

  loop.Post([&] {
    const SteadyTime due = loop.Now() + milliseconds(3);
    loop.RunAt(due, [&, due] {
      early = due - loop.Now();
      counter.Increment();
    });
  });

  ASSERT_TRUE(counter.WaitFor(1));
  loop.Stop();
  EXPECT_LE(early, Duration::zero());
}

TEST(EventLoopTest, CancelStopsATimerAndIgnoresUnknownOnes) {
  EventLoop loop("loop");
  Counter cancelled;
  Counter last;

  loop.Post([&] {
    const Executor::TimerId timer = loop.RunAfter(milliseconds(1), [&] { cancelled.Increment(); });
    const Executor::TimerId cancelling =
        loop.RunAfter(Duration::zero(), [&, timer] { loop.Cancel(timer); });
    loop.RunAfter(milliseconds(2), [&, cancelling] {
      loop.Cancel(cancelling);  // it has run
      loop.Cancel(12345);
      last.Increment();
    });
  });

  ASSERT_TRUE(last.WaitFor(1));
  loop.Stop();
  EXPECT_EQ(cancelled.count(), 0);
}

TEST(EventLoopTest, CallsTheHandlerWhileADescriptorIsReady) {
  EventLoop loop("loop");
  Pipe pipe;
  Counter counter;
  RunOn(loop, [&] {
    ASSERT_TRUE(loop.Watch(pipe.reader.get(),
                           EPOLLIN,
                           [&](uint32_t events) {
                             EXPECT_NE(events & EPOLLIN, 0U);
                             pipe.Drain();
                             counter.Increment();
                           })
                    .ok());
  });

  for (int i = 1; i <= 3; ++i) {
    pipe.Write();
    ASSERT_TRUE(counter.WaitFor(i));
  }

  RunOn(loop, [&] { loop.Unwatch(pipe.reader.get()); });
  pipe.Write();
  RunOn(loop, [] {});
  EXPECT_EQ(counter.count(), 3);
}

TEST(EventLoopTest, ReportsOnlyRequestedEvents) {
  EventLoop loop("loop");
  Pipe pipe;
  Counter counter;
  pipe.Write();

  RunOn(loop, [&] {
    ASSERT_TRUE(loop.Watch(pipe.reader.get(),
                           0,
                           [&](uint32_t) {
                             counter.Increment();
                             loop.Unwatch(pipe.reader.get());
                           })
                    .ok());
  });
  RunOn(loop, [] {});
  EXPECT_EQ(counter.count(), 0);
  RunOn(loop, [&] { ASSERT_TRUE(loop.Rewatch(pipe.reader.get(), EPOLLIN).ok()); });

  EXPECT_TRUE(counter.WaitFor(1));
}

TEST(EventLoopTest, AHandlerMayUnwatchItselfAndOthers) {
  EventLoop loop("loop");
  std::array<Pipe, 2> pipes;
  Counter counter;
  for (Pipe& pipe : pipes) pipe.Write();

  // Both are ready in one round; whichever comes first takes both out.
  RunOn(loop, [&] {
    for (Pipe& watched : pipes) {
      ASSERT_TRUE(loop.Watch(watched.reader.get(),
                             EPOLLIN,
                             [&](uint32_t) {
                               for (Pipe& pipe : pipes) loop.Unwatch(pipe.reader.get());
                               counter.Increment();
                             })
                      .ok());
    }
  });

  ASSERT_TRUE(counter.WaitFor(1));
  RunOn(loop, [] {});
  EXPECT_EQ(counter.count(), 1);
}

TEST(EventLoopTest, WatchingAnInvalidDescriptorIsAnError) {
  EventLoop loop("loop");
  absl::Status closed;
  absl::Status twice;
  absl::Status unknown;
  Pipe pipe;

  RunOn(loop, [&] {
    closed = loop.Watch(-1, EPOLLIN, [](uint32_t) {});
    EXPECT_TRUE(loop.Watch(pipe.reader.get(), EPOLLIN, [](uint32_t) {}).ok());
    twice = loop.Watch(pipe.reader.get(), EPOLLIN, [](uint32_t) {});
    unknown = loop.Rewatch(pipe.writer.get(), EPOLLOUT);
    loop.Unwatch(pipe.reader.get());
    loop.Unwatch(pipe.reader.get());
  });

  EXPECT_FALSE(closed.ok());
  EXPECT_EQ(twice.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
}

TEST(EventLoopTest, ItsThreadHasTheNameOfTheLoop) {
  EventLoop loop("pp-lane-0");
  std::array<char, 16> name{};

  RunOn(loop, [&] { pthread_getname_np(pthread_self(), name.data(), name.size()); });

  EXPECT_STREQ(name.data(), "pp-lane-0");
}

TEST(EventLoopTest, BusyGrowsWithWork) {
  EventLoop loop("loop");
  const Duration before = loop.busy();

  RunOn(loop, [&] {
    const SteadyTime end = loop.Now() + milliseconds(5);
    while (loop.Now() < end) {
    }
  });

  EXPECT_GE(loop.busy() - before, milliseconds(5));
}

}  // namespace
}  // namespace pushpull
