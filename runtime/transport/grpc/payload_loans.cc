// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/payload_loans.h"

#include <utility>

#include "runtime/base/mutex.h"

namespace pushpull {

// Thread-safe.
class PayloadLoans::State final : public std::enable_shared_from_this<State> {
 public:
  State(Executor& executor, InFlight& in_flight) : executor_(executor), in_flight_(in_flight) {}

  void Lent() {
    lent_.Add();
    in_flight_.Add();
  }

  void Return(std::shared_ptr<const void> owner) ABSL_LOCKS_EXCLUDED(mu_) {
    bool is_first = false;
    if (owner != nullptr) {
      MutexLock lock(mu_);
      is_first = returned_.empty();
      returned_.push_back(std::move(owner));
    }
    // Posted before the count drops: when it reaches zero the executor may end.
    if (is_first) executor_.Post([self = shared_from_this()] { self->ReleaseOwners(); });
    lent_.Remove();
    in_flight_.Remove();
  }

  void AwaitAll() ABSL_LOCKS_EXCLUDED(mu_) {
    lent_.AwaitNone();
    ReleaseOwners();
  }

 private:
  void ReleaseOwners() ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<std::shared_ptr<const void>> owners;
    MutexLock lock(mu_);
    owners.swap(returned_);  // destroyed after the lock is released: destructors are arbitrary code
  }

  Executor& executor_;
  InFlight& in_flight_;
  InFlight lent_;  // this stream's only
  Mutex mu_;
  std::vector<std::shared_ptr<const void>> returned_ ABSL_GUARDED_BY(mu_);
};

PayloadLoan::PayloadLoan(std::shared_ptr<PayloadLoans::State> state, Payload payload)
    : state_(std::move(state)), payload_(std::move(payload)) {
  state_->Lent();
}

PayloadLoan::~PayloadLoan() {
  state_->Return(std::move(payload_.owner));
}

PayloadLoans::PayloadLoans(Executor& executor, InFlight& in_flight)
    : state_(std::make_shared<State>(executor, in_flight)) {}

std::unique_ptr<PayloadLoan> PayloadLoans::Lend(Payload payload) {
  return std::make_unique<PayloadLoan>(state_, std::move(payload));
}

void PayloadLoans::AwaitAll() {
  state_->AwaitAll();
}

}  // namespace pushpull
