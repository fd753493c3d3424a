// SPDX-License-Identifier: Apache-2.0
//
// What a worker records for `pushpull trace`: the pushes of its next steps, and what its program
// did meanwhile. Costs one comparison per chunk while no trace is on.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/transport/frame.h"
#include "runtime/worker/sync_meter.h"

namespace pushpull {

// Thread-confined to the worker's executor, except for is_on.
class TraceRecorder {
 public:
  explicit TraceRecorder(WorkerId worker) : worker_(worker) {}

  // Called by any thread, to skip what nobody records.
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }

  void SetTensors(const std::vector<PlacedTensor>& tensors);
  // Records the steps from `first` on; without it, from the step of the first answer on. Replaces
  // an earlier trace.
  void Start(const TraceSteps& order, std::optional<Step> first, SteadyTime now);

  // The number of the trace that records this step; empty: no trace does.
  std::optional<uint64_t> TraceOf(Step step) const;

  // Records the push if it belongs to a step of the trace.
  void OnAnswered(const AnsweredPush& push, const PushTimes& times, const PublishedTiming& timing) {
    if (is_on()) Record(push, times, timing);
  }
  // All chunks of the step are back.
  void OnSynchronized(Step step);
  void AddSpan(TracedSpan span);
  // The worker leaves: the trace ends with what has been recorded.
  void End() { is_complete_ = true; }

  // Everything recorded, once the trace is over; empty: it is not over, or none is on.
  std::vector<TraceReport> TakeIfOver(SteadyTime now);

 private:
  Step end_step() const { return Step{first_step_->value() + order_.steps}; }
  void Record(const AnsweredPush& push, const PushTimes& times, const PublishedTiming& timing);
  bool HasRoom();
  std::vector<TracedTensor> TensorsOf(const std::vector<TracedPush>& pushes) const;
  std::vector<TracedClock> ClocksOf(const std::vector<TracedPush>& pushes) const;

  const WorkerId worker_;
  std::atomic<bool> is_on_ = false;
  std::vector<TracedTensor> tensors_;  // by first chunk
  TraceSteps order_;
  SteadyTime deadline_;
  std::optional<Step> first_step_;
  bool is_complete_ = false;
  std::vector<TracedPush> pushes_;
  std::vector<TracedSpan> spans_;
  std::map<ServerId, int64_t> offsets_;  // the newest
  uint64_t left_out_ = 0;
};

}  // namespace pushpull
