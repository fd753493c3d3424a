// SPDX-License-Identifier: Apache-2.0
//
// Lets a listener end on one thread while lanes on other threads may be handing over connections:
// the acceptor is not called after Close has returned.
#pragma once

#include <functional>

#include "runtime/base/mutex.h"
#include "runtime/transport/channel.h"

namespace pushpull {

// Thread-safe.
class AcceptorGate {
 public:
  // `acceptor` is used until Close has returned.
  explicit AcceptorGate(ChannelAcceptor& acceptor) : acceptor_(&acceptor) {}

  // Calls `use` with the acceptor, unless the gate is closed; returns whether it did.
  bool Enter(const std::function<void(ChannelAcceptor&)>& use) ABSL_LOCKS_EXCLUDED(mu_);

  // Blocks until nobody is inside, which does not take long: an acceptor takes over a channel and
  // returns. Must not be called from inside.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Mutex mu_;
  CondVar changed_;
  ChannelAcceptor* acceptor_ ABSL_GUARDED_BY(mu_);
  int num_inside_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace pushpull
