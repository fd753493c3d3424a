// SPDX-License-Identifier: Apache-2.0
//
// The requests that wait for a chunk's next version.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/tensor/host_buffer.h"
#include "runtime/transport/frame.h"

namespace pushpull {

class Connection;

// A request that is answered once the chunk has reached a version.
struct Waiter {
  Connection* connection = nullptr;
  FrameHeader request;
  Step min_version;
  bool wants_value = true;
  Step clock;              // of a read: the worker's, its own push included
  SteadyTime taken_up_at;  // of a push: when the lane started to process it
  Duration sum_time{0};    // time to add it, checks included
  PublishedTiming timing;  // filled in on the way
  // A pull of rows: the wanted keys, in the form of ParseRowKeys. Null: none.
  std::shared_ptr<const HostBuffer> row_keys = {};
};

// Thread-confined to its lane.
class WaiterQueue {
 public:
  // With few workers, needs no allocation.
  using Taken = absl::InlinedVector<Waiter, 4>;

  bool empty() const { return waiters_.empty(); }
  std::span<const Waiter> all() const { return waiters_; }

  // A worker has at most one push, one pull and one fetch waiting; a repeated one replaces the
  // earlier.
  void Add(const Waiter& waiter);
  void DropRequestsOf(const Connection& connection);

  // Removes and returns those for which `is_due` is true, in the order in which they were added.
  Taken Take(absl::FunctionRef<bool(const Waiter&)> is_due);
  std::vector<Waiter> TakeAll() { return std::exchange(waiters_, {}); }

  // When the last step completed and when it was applied, for FinishTiming.
  void SetStepTimes(SteadyTime completed_at, SteadyTime applied_at);
  // Fills in the phases of a push that is answered `now`. A push taken up after the step had
  // completed had no part in it, so its timing stays unchanged.
  void FinishTiming(SteadyTime now, Waiter& waiter) const;

 private:
  std::vector<Waiter> waiters_;
  SteadyTime completed_at_;
  SteadyTime applied_at_;
};

}  // namespace pushpull
