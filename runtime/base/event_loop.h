// SPDX-License-Identifier: Apache-2.0
//
// A thread around epoll that runs posted closures, timers and handlers of ready descriptors. It
// sleeps in epoll_wait until something happens; it never polls.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/executor.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/mutex.h"

namespace pushpull {

// Owns one thread, named at creation and joined in the destructor. Post, Now, busy and the
// constructor are thread-safe; everything else is confined to the loop's own thread.
class EventLoop final : public Executor {
 public:
  // Bits of epoll: EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP.
  using FdHandler = std::function<void(uint32_t events)>;

  // `name` has at most 15 characters (Linux's limit for a thread's name).
  explicit EventLoop(const std::string& name);
  ~EventLoop() override { Stop(); }
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  void Post(std::function<void()> task) override ABSL_LOCKS_EXCLUDED(mu_);
  TimerId RunAt(SteadyTime when, std::function<void()> task) override;
  void Cancel(TimerId timer) override;
  SteadyTime Now() const override { return std::chrono::steady_clock::now(); }

  // Calls `handler` while `fd` is ready for `events` (level-triggered). The caller keeps the
  // descriptor and must call Unwatch before closing it. The handler may Unwatch itself.
  absl::Status Watch(int fd, uint32_t events, FdHandler handler);
  absl::Status Rewatch(int fd, uint32_t events) { return Control(EPOLL_CTL_MOD, fd, events); }
  void Unwatch(int fd);

  // Runs the closures that are already posted, then ends and joins the thread. Must not be called
  // on the loop; safe to call twice. Closures that did not run are destroyed.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  bool is_loop_thread() const;

  // Time spent in handlers since the start; divided by wall time it is the busy ratio.
  Duration busy() const { return Duration(busy_ticks_.load(std::memory_order_relaxed)); }

 private:
  absl::Status Control(int operation, int fd, uint32_t events);
  void Run();
  void RunPosted() ABSL_LOCKS_EXCLUDED(mu_);
  void RunTimers(SteadyTime due);
  int TimeoutMilliseconds() ABSL_LOCKS_EXCLUDED(mu_);
  void Wake();

  FileDescriptor epoll_;
  FileDescriptor wakeup_;  // eventfd

  // Confined to the loop's thread.
  uint64_t next_timer_ = 1;
  std::map<std::pair<SteadyTime, TimerId>, std::function<void()>> timers_;
  std::unordered_map<TimerId, SteadyTime> timer_times_;
  // shared_ptr: a handler that unwatches itself must outlive its own call.
  std::unordered_map<int, std::shared_ptr<FdHandler>> handlers_;
  std::atomic<int64_t> busy_ticks_ = 0;

  Mutex mu_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mu_);
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace pushpull
