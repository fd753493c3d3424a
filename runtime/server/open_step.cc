// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/open_step.h"

#include <utility>

#include "absl/algorithm/container.h"

namespace pushpull {

bool OpenStep::HasHeld(WorkerId worker) const {
  return absl::c_any_of(held_, [&](const ReceivedContribution& held) {
    return held.contribution.worker == worker ||
           absl::c_any_of(held.joined, [&](const auto& also) { return also.worker == worker; });
  });
}

void OpenStep::NoteArrival(SteadyTime now, bool measures_noise) {
  if (measures_noise) sum_.noise().Begin();
  if (!has_begun()) began_at_ = now;
}

void OpenStep::Count(const ReceivedContribution& received) {
  counted_.Count(received.contribution);
  for (const Contribution& also : received.joined) counted_.Count(also);
  skips_ = skips_ || received.skips_step;
  // The step may have been complete already, with a worker required since: when a view has only one
  // member, that worker begins with the open step.
  sum_.clip() = {};
}

void OpenStep::CountDirect(const ReceivedContribution& received) {
  if (received.counts) {
    sum_.FinishDirect(received.weight());
  } else {
    sum_.AbandonDirect();
  }
  Count(received);
}

void OpenStep::CountFrom(std::span<const float> values, const ReceivedContribution& received) {
  if (received.counts) sum_.AddTo(values, received.weight());
  Count(received);
}

void OpenStep::CountHeld(ReceivedContribution& held) {
  if (!held.has_gradient) {
    sum_.AddNothing(held.weight());
  } else if (held.counts) {
    sum_.Add(held.values, held.weight());
  }
  Count(held);
}

void OpenStep::Hold(ReceivedContribution received) {
  const WorkerId worker = received.contribution.worker;
  std::erase_if(
      held_, [&](const ReceivedContribution& held) { return held.contribution.worker == worker; });
  const auto position =
      absl::c_find_if(held_, [&](const auto& held) { return held.contribution.worker > worker; });
  held_.insert(position, std::move(received));
}

ReceivedContribution OpenStep::TakeFirstHeld() {
  ReceivedContribution first = std::move(held_.front());
  held_.erase(held_.begin());
  return first;
}

std::vector<ReceivedContribution> OpenStep::TakeHeld(
    absl::FunctionRef<bool(const ReceivedContribution&)> matches) {
  std::vector<ReceivedContribution> taken;
  std::erase_if(held_, [&](ReceivedContribution& held) {
    const bool is_taken = matches(held);
    if (is_taken) taken.push_back(std::move(held));
    return is_taken;
  });
  return taken;
}

void OpenStep::DropRequestsOf(const Connection& connection) {
  for (ReceivedContribution& held : held_)
    if (held.waiter.connection == &connection) held.waiter.connection = nullptr;
}

std::vector<Waiter> OpenStep::TakeHeldWaiters() {
  std::vector<Waiter> waiters;
  for (ReceivedContribution& held : held_) {
    if (held.waiter.connection == nullptr) continue;
    waiters.push_back(held.waiter);
    held.waiter.connection = nullptr;
  }
  return waiters;
}

// Frames arrive in any order over several connections: an older decision must not replace a newer
// one.
void OpenStep::Learn(Admission decided, Step version) {
  const bool is_newer = !decided_ || decided_->step < decided.step;
  if (is_newer && decided.step >= version) decided_ = std::move(decided);
}

void OpenStep::Withdraw(WorkerId worker, Step step) {
  if (!decided_ || decided_->step >= step) return;
  // A contribution that has arrived counts.
  if (counted_.HasCounted(worker) || HasHeld(worker)) return;
  std::erase(decided_->workers, worker);
}

void OpenStep::Clear() {
  counted_.Clear();
  held_.clear();
  skips_ = false;
  sum_.Clear();
}

}  // namespace pushpull
