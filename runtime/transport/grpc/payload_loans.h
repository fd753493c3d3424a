// SPDX-License-Identifier: Apache-2.0
//
// Payloads that gRPC reads in place. gRPC releases them on its own threads, but owners must be
// released on the channel's executor, and a payload without owner must not be read after its
// channel has closed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "runtime/base/executor.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/grpc/in_flight.h"

namespace pushpull {

class PayloadLoan;

// Confined to one executor.
class PayloadLoans {
 public:
  // Outstanding loans are counted in `in_flight`; both outlive the last loan.
  PayloadLoans(Executor& executor, InFlight& in_flight);

  std::unique_ptr<PayloadLoan> Lend(Payload payload);

  // Blocks until every payload is returned, then releases their owners. Called when the connection
  // has ended or is about to: gRPC then returns them at once.
  void AwaitAll();

 private:
  friend class PayloadLoan;
  class State;

  const std::shared_ptr<State> state_;
};

// A payload is lent until this is destroyed, on any thread.
class PayloadLoan {
 public:
  PayloadLoan(std::shared_ptr<PayloadLoans::State> state, Payload payload);
  ~PayloadLoan();
  PayloadLoan(const PayloadLoan&) = delete;
  PayloadLoan& operator=(const PayloadLoan&) = delete;

  std::span<const std::byte> bytes() const { return payload_.bytes; }

 private:
  const std::shared_ptr<PayloadLoans::State> state_;
  Payload payload_;
};

}  // namespace pushpull
