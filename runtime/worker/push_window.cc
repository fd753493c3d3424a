// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/push_window.h"

#include <utility>

#include "runtime/base/mutex.h"

namespace pushpull {

// Shared with what is lent, which a channel may return after the window is gone.
struct PushWindow::Account {
  Mutex mu;
  Executor* executor ABSL_GUARDED_BY(mu) = nullptr;  // null once the window is gone
  std::function<void()> on_room ABSL_GUARDED_BY(mu);
  uint64_t lent ABSL_GUARDED_BY(mu) = 0;
  bool is_room_wanted ABSL_GUARDED_BY(mu) = false;

  static void Return(const std::shared_ptr<Account>& account, uint64_t bytes);
};

// Posts, because it is called while a channel is sending.
void PushWindow::Account::Return(const std::shared_ptr<Account>& account, uint64_t bytes) {
  const MutexLock lock(account->mu);
  account->lent -= bytes;
  if (account->executor == nullptr || !std::exchange(account->is_room_wanted, false)) return;
  account->executor->Post([account] {
    std::function<void()> tell;
    {
      const MutexLock again(account->mu);
      if (account->executor != nullptr) tell = account->on_room;
    }
    if (tell) tell();
  });
}

PushWindow::PushWindow(Executor& executor, std::function<void()> on_room)
    : account_(std::make_shared<Account>()) {
  const MutexLock lock(account_->mu);
  account_->executor = &executor;
  account_->on_room = std::move(on_room);
}

PushWindow::~PushWindow() {
  const MutexLock lock(account_->mu);
  account_->executor = nullptr;
}

std::optional<ChunkId> PushWindow::Next() {
  if (waiting_.empty()) return std::nullopt;
  {
    const MutexLock lock(account_->mu);
    if (account_->lent >= limit_) {
      account_->is_room_wanted = true;
      return std::nullopt;
    }
  }
  const ChunkId next = waiting_.top().chunk;
  waiting_.pop();
  return next;
}

std::shared_ptr<const void> PushWindow::Lend(uint64_t bytes, std::shared_ptr<const void> owner) {
  {
    const MutexLock lock(account_->mu);
    account_->lent += bytes;
  }
  // Not null, which would mean that nobody has to be notified.
  const void* const name = account_.get();
  return {name, [account = account_, bytes, owner = std::move(owner)](const void*) mutable {
            owner.reset();
            Account::Return(account, bytes);
          }};
}

}  // namespace pushpull
