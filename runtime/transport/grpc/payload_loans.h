// SPDX-License-Identifier: Apache-2.0
//
// Payloads that gRPC reads where they lie. It says on a thread of its own when it does so no more,
// while owners are given up on the channel's executor, and a payload without one must not be read
// any more once its channel has ended.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/executor.h"
#include "runtime/base/mutex.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/grpc/in_flight.h"

namespace pushpull {

// A payload is lent until this is destroyed, on any thread.
class PayloadLoan {
 public:
  virtual ~PayloadLoan() = default;
  virtual std::span<const std::byte> bytes() const = 0;
};

// Confined to one executor.
class PayloadLoans {
 public:
  // What is not given back yet is counted in `in_flight`; both outlive the last loan.
  PayloadLoans(Executor& executor, InFlight& in_flight);

  std::unique_ptr<PayloadLoan> Lend(Payload payload);

  // Waits until everything is given back, and gives its owners up. For an end whose connection has
  // ended or is about to: then gRPC lets go at once.
  void AwaitAll();

 private:
  class State;
  class Loan;

  const std::shared_ptr<State> state_;
};

}  // namespace pushpull
