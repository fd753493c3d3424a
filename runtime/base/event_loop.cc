// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/event_loop.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

// Enough for every connection of a busy server in one wake-up; more only costs stack.
constexpr int kEventsPerWait = 64;

// The loop that runs on this thread, if any: posting to itself needs no wake-up.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): each thread has its own
thread_local const EventLoop* current_loop = nullptr;

}  // namespace

EventLoop::EventLoop(const std::string& name)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wakeup_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PUSHPULL_CHECK(epoll_.is_open() && wakeup_.is_open());
  PUSHPULL_CHECK(Control(EPOLL_CTL_ADD, wakeup_.get(), EPOLLIN).ok());
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

void EventLoop::Post(std::function<void()> task) {
  bool was_empty = false;
  {
    MutexLock lock(mu_);
    if (is_stopping_) return;
    was_empty = posted_.empty();
    posted_.push_back(std::move(task));
  }
  if (was_empty && !is_loop_thread()) Wake();
}

Executor::TimerId EventLoop::RunAt(SteadyTime when, std::function<void()> task) {
  const TimerId timer = next_timer_++;
  timers_.emplace(std::pair(when, timer), std::move(task));
  timer_times_.emplace(timer, when);
  return timer;
}

void EventLoop::Cancel(TimerId timer) {
  const auto it = timer_times_.find(timer);
  if (it == timer_times_.end()) return;
  timers_.erase(std::pair(it->second, timer));
  timer_times_.erase(it);
}

absl::Status EventLoop::Control(int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return absl::OkStatus();
  return StatusFromErrno(errno, operation == EPOLL_CTL_ADD ? "epoll_ctl add" : "epoll_ctl mod");
}

absl::Status EventLoop::Watch(int fd, uint32_t events, FdHandler handler) {
  PUSHPULL_RETURN_IF_ERROR(Control(EPOLL_CTL_ADD, fd, events));
  handlers_[fd] = std::make_shared<FdHandler>(std::move(handler));
  return absl::OkStatus();
}

void EventLoop::Unwatch(int fd) {
  if (handlers_.erase(fd) > 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::Stop() {
  {
    MutexLock lock(mu_);
    is_stopping_ = true;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

bool EventLoop::is_loop_thread() const {
  return current_loop == this;
}

void EventLoop::Run() {
  current_loop = this;
  std::array<epoll_event, kEventsPerWait> events;
  while (true) {
    const int count =
        epoll_wait(epoll_.get(), events.data(), kEventsPerWait, TimeoutMilliseconds());
    const SteadyTime woken = Now();
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.fd == wakeup_.get()) {
        uint64_t ignored = 0;
        while (read(wakeup_.get(), &ignored, sizeof ignored) > 0) {
        }
        continue;
      }
      const auto it = handlers_.find(event.data.fd);
      if (it == handlers_.end()) continue;  // unwatched by an earlier handler of this round
      const std::shared_ptr<FdHandler> handler = it->second;
      (*handler)(event.events);
    }
    // Timers last, and only those that were due when the round began: after a pause, one that
    // judges a peer's silence must not run before what has come meanwhile.
    RunPosted();
    RunTimers(woken);
    busy_ticks_.fetch_add((Now() - woken).count(), std::memory_order_relaxed);
    MutexLock lock(mu_);
    if (is_stopping_ && posted_.empty()) return;
  }
}

void EventLoop::RunPosted() {
  std::vector<std::function<void()>> tasks;
  {
    MutexLock lock(mu_);
    tasks.swap(posted_);
  }
  for (std::function<void()>& task : tasks) {
    task();
    task = nullptr;  // destroys its captures before the next one runs
  }
}

void EventLoop::RunTimers(SteadyTime due) {
  while (!timers_.empty() && timers_.begin()->first.first <= due) {
    auto node = timers_.extract(timers_.begin());
    timer_times_.erase(node.key().second);
    node.mapped()();
  }
}

int EventLoop::TimeoutMilliseconds() {
  {
    MutexLock lock(mu_);
    if (!posted_.empty()) return 0;
  }
  if (timers_.empty()) return -1;
  const Duration left = timers_.begin()->first.first - Now();
  if (left <= Duration::zero()) return 0;
  // Rounded up: rounding down would spin through the last millisecond.
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<int64_t>(ms, 60'000));
}

void EventLoop::Wake() {
  const uint64_t one = 1;
  // A full counter (EAGAIN) means a wake-up is already pending.
  [[maybe_unused]] const ssize_t written = write(wakeup_.get(), &one, sizeof one);
}

}  // namespace pushpull
