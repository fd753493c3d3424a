// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/waiter_queue.h"

#include "runtime/transport/peer_clock.h"

namespace pushpull {
namespace {

FrameType KindOf(const Waiter& waiter) {
  const FrameType type = waiter.request.type;
  return type == FrameType::kPull || type == FrameType::kFetch ? type : FrameType::kPush;
}

}  // namespace

void WaiterQueue::Add(const Waiter& waiter) {
  std::erase_if(waiters_, [&](const Waiter& other) {
    return other.request.worker == waiter.request.worker && KindOf(other) == KindOf(waiter);
  });
  waiters_.push_back(waiter);
}

void WaiterQueue::DropRequestsOf(const Connection& connection) {
  std::erase_if(waiters_, [&](const Waiter& waiter) { return waiter.connection == &connection; });
}

WaiterQueue::Taken WaiterQueue::Take(absl::FunctionRef<bool(const Waiter&)> is_due) {
  Taken taken;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    const bool is_taken = is_due(waiter);
    if (is_taken) taken.push_back(waiter);
    return is_taken;
  });
  return taken;
}

void WaiterQueue::SetStepTimes(SteadyTime completed_at, SteadyTime applied_at) {
  completed_at_ = completed_at;
  applied_at_ = applied_at;
}

void WaiterQueue::FinishTiming(SteadyTime now, Waiter& waiter) const {
  const bool is_in_step = waiter.taken_up_at != SteadyTime{} && waiter.taken_up_at <= completed_at_;
  if (!is_in_step) return;
  waiter.timing.sum_ns = NanosecondsOf(waiter.sum_time);
  waiter.timing.wait_ns = NanosecondsOf(completed_at_ - waiter.taken_up_at - waiter.sum_time);
  waiter.timing.optimize_ns = NanosecondsOf(applied_at_ - completed_at_);
  waiter.timing.replicate_ns = NanosecondsOf(now - applied_at_);
  waiter.timing.published_at = NanosecondsOf(now.time_since_epoch());
}

}  // namespace pushpull
