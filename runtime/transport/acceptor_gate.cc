// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/acceptor_gate.h"

#include "runtime/base/check.h"

namespace pushpull {
namespace {

// An acceptor that stays inside for this many seconds never returns. Counted one by one, so that
// time in which the process is stopped (SIGSTOP) does not count.
constexpr int kTimeoutSeconds = 30;

}  // namespace

bool AcceptorGate::Enter(const std::function<void(ChannelAcceptor&)>& use) {
  ChannelAcceptor* acceptor = nullptr;
  {
    MutexLock lock(mu_);
    if (acceptor_ == nullptr) return false;
    acceptor = acceptor_;
    ++num_inside_;
  }
  use(*acceptor);
  MutexLock lock(mu_);
  --num_inside_;
  changed_.NotifyAll();
  return true;
}

void AcceptorGate::Close() {
  MutexLock lock(mu_);
  acceptor_ = nullptr;
  for (int waited = 0; num_inside_ > 0;) {
    const bool is_notified = changed_.WaitUntil(mu_, Deadline::After(std::chrono::seconds(1)));
    if (!is_notified) ++waited;
    PUSHPULL_CHECK(waited < kTimeoutSeconds);
  }
}

}  // namespace pushpull
