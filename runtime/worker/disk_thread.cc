// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/disk_thread.h"

#include <pthread.h>

#include <chrono>
#include <thread>
#include <utility>

namespace pushpull {
namespace {

// CondVar has no wait without a deadline; when this one passes, the wait begins anew.
constexpr Duration kLook = std::chrono::minutes(1);

}  // namespace

DiskThread::DiskThread(Executor& executor, Duration patience)
    : patience_(patience), shared_(std::make_shared<Shared>(executor)) {}

DiskThread::~DiskThread() {
  if (!has_thread_) return;
  const Deadline deadline = Deadline::After(patience_);
  MutexLock lock(shared_->mu);
  shared_->is_ending = true;
  shared_->next = nullptr;
  shared_->changed.NotifyAll();
  while (!shared_->has_ended && !deadline.has_passed())
    shared_->changed.WaitUntil(shared_->mu, deadline);
}

void DiskThread::Start(Task task) {
  {
    MutexLock lock(shared_->mu);
    shared_->next = std::move(task);
    shared_->changed.NotifyAll();
  }
  if (std::exchange(has_thread_, true)) return;
  std::thread thread([shared = shared_] { Run(*shared); });
  pthread_setname_np(thread.native_handle(), "pp-checkpoint");
  thread.detach();
}

void DiskThread::Run(Shared& shared) {
  while (Task task = Next(shared)) {
    std::function<void()> done = task();
    task = nullptr;  // what it owns is large
    MutexLock lock(shared.mu);
    if (!shared.is_ending) shared.executor.Post(std::move(done));
  }
  MutexLock lock(shared.mu);
  shared.has_ended = true;
  shared.changed.NotifyAll();
}

DiskThread::Task DiskThread::Next(Shared& shared) {
  MutexLock lock(shared.mu);
  while (shared.next == nullptr && !shared.is_ending)
    shared.changed.WaitUntil(shared.mu, Deadline::After(kLook));
  return std::exchange(shared.next, nullptr);
}

}  // namespace pushpull
