// SPDX-License-Identifier: Apache-2.0
#include "runtime/ring/ring_thread.h"

#include <pthread.h>

#include <memory>
#include <utility>

#include "runtime/base/check.h"

namespace pushpull {
namespace {

constexpr Duration kLook = std::chrono::seconds(60);

}  // namespace

RingThread::RingThread(Executor& executor)
    : executor_(executor), self_(std::make_shared<RingThread*>(this)), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "pp-ring");
}

RingThread::~RingThread() {
  interrupt_.Set();
  {
    MutexLock lock(mu_);
    is_ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void RingThread::Start(Task task, Done done) {
  PUSHPULL_CHECK(!is_busy_);
  is_busy_ = true;
  done_ = std::move(done);
  interrupt_.Clear();
  MutexLock lock(mu_);
  task_ = std::move(task);
  changed_.NotifyAll();
}

void RingThread::Run() {
  while (true) {
    Task task;
    {
      MutexLock lock(mu_);
      while (!task_ && !is_ending_) changed_.WaitUntil(mu_, Deadline::After(kLook));
      if (is_ending_) return;
      task = std::exchange(task_, nullptr);
    }
    const absl::Status status = task();
    executor_.Post([weak = std::weak_ptr<RingThread*>(self_), status] {
      if (const std::shared_ptr<RingThread*> self = weak.lock()) (*self)->Finish(status);
    });
  }
}

void RingThread::Finish(const absl::Status& status) {
  is_busy_ = false;
  const Done done = std::exchange(done_, nullptr);
  done(status);
}

}  // namespace pushpull
