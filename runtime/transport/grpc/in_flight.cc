// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/in_flight.h"

#include "runtime/transport/grpc/wire.h"

namespace pushpull {

void InFlight::Add() {
  MutexLock lock(mu_);
  ++count_;
}

void InFlight::Remove() {
  MutexLock lock(mu_);
  --count_;
  changed_.NotifyAll();
}

void InFlight::AddWire(const std::shared_ptr<Wire>& wire) {
  {
    MutexLock lock(mu_);
    ++count_;
    std::erase_if(wires_, [](const std::weak_ptr<Wire>& other) { return other.expired(); });
    wires_.push_back(wire);
    if (!is_ending_) return;
  }
  wire->End();
}

void InFlight::EndWires() {
  std::vector<std::weak_ptr<Wire>> wires;
  {
    MutexLock lock(mu_);
    is_ending_ = true;
    wires.swap(wires_);
  }
  for (const std::weak_ptr<Wire>& wire : wires) {
    if (const std::shared_ptr<Wire> alive = wire.lock()) alive->End();
  }
}

void InFlight::AwaitNone() {
  MutexLock lock(mu_);
  for (BriefWait wait; count_ > 0;) wait.Continue(changed_, mu_);
}

}  // namespace pushpull
