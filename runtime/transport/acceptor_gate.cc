// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/acceptor_gate.h"

namespace pushpull {

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
  for (BriefWait wait; num_inside_ > 0;) wait.Continue(changed_, mu_);
}

}  // namespace pushpull
