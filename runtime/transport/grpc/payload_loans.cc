// SPDX-License-Identifier: Apache-2.0
#include "runtime/transport/grpc/payload_loans.h"

#include <utility>

#include "runtime/base/check.h"

namespace pushpull {
// Thread-safe.
class PayloadLoans::State final : public std::enable_shared_from_this<State> {
 public:
  State(Executor& executor, InFlight& in_flight) : executor_(executor), in_flight_(in_flight) {}

  void Lent() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    ++num_lent_;
    in_flight_.Add();
  }

  void Return(std::shared_ptr<const void> owner) ABSL_LOCKS_EXCLUDED(mu_) {
    bool is_first = false;
    {
      MutexLock lock(mu_);
      is_first = owner != nullptr && returned_.empty();
      if (owner != nullptr) returned_.push_back(std::move(owner));
    }
    // Posted before the count drops: when it reaches zero the executor may end.
    if (is_first) executor_.Post([self = shared_from_this()] { self->ReleaseOwners(); });
    {
      MutexLock lock(mu_);
      --num_lent_;
      changed_.NotifyAll();
    }
    in_flight_.Remove();
  }

  void AwaitAll() ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      for (int waited = 0; num_lent_ > 0;) {
        const bool is_notified = changed_.WaitUntil(mu_, Deadline::After(std::chrono::seconds(1)));
        if (!is_notified) ++waited;
        PUSHPULL_CHECK(waited < kGrpcEndSeconds);
      }
    }
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
  Mutex mu_;
  CondVar changed_;
  size_t num_lent_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::shared_ptr<const void>> returned_ ABSL_GUARDED_BY(mu_);
};

class PayloadLoans::Loan final : public PayloadLoan {
 public:
  Loan(std::shared_ptr<State> state, Payload payload)
      : state_(std::move(state)), payload_(std::move(payload)) {
    state_->Lent();
  }
  ~Loan() override { state_->Return(std::move(payload_.owner)); }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  std::span<const std::byte> bytes() const override { return payload_.bytes; }

 private:
  const std::shared_ptr<State> state_;
  Payload payload_;
};

PayloadLoans::PayloadLoans(Executor& executor, InFlight& in_flight)
    : state_(std::make_shared<State>(executor, in_flight)) {}

std::unique_ptr<PayloadLoan> PayloadLoans::Lend(Payload payload) {
  return std::make_unique<Loan>(state_, std::move(payload));
}

void PayloadLoans::AwaitAll() {
  state_->AwaitAll();
}

}  // namespace pushpull
