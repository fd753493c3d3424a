// SPDX-License-Identifier: Apache-2.0
//
// A worker's end of the sample queue (consistency/sample_queue.h). Divided: the worker's copy of
// the job's queue, which the servers divide among the workers, and its push to it in each step.
// Own: a private queue, which advances as if all workers were always present and equally fast; for
// modes without steps that all workers take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "pushpull/tensor_spec.h"

#include "runtime/base/ids.h"
#include "runtime/consistency/sample_queue.h"

namespace pushpull {

// Thread-compatible.
class SampleShare {
 public:
  // Divided by the servers.
  SampleShare(WorkerId worker, const SampleSource& source);
  // Own, for one of `workers`.
  SampleShare(WorkerId worker, const SampleSource& source, uint32_t workers);

  // Whether there is a tensor to register and to push to.
  bool is_divided() const { return !own_; }
  TensorSpec spec() const;
  // The queue's value, which answers are written to: after registering and after every commit.
  std::span<float> value() { return value_; }
  std::span<const float> gradient() const { return gradient_; }

  // The step's samples are processed; a released worker requests no more. Returns the weight of the
  // push to the queue where it is divided.
  double Commit(bool is_released);
  // Skips the steps that an earlier process of the worker has completed. Own queues only.
  void SkipTo(Step step);
  // This worker's samples of the step `steps_ahead` after `next`, if the workers stay the same
  // until then; after its own next one where the queue is its own. kDataLoss: the value is not a
  // queue.
  absl::StatusOr<StepSamples> At(Step next, uint64_t steps_ahead) const;
  // It requests no further samples because it was released.
  bool was_released() const { return is_over_; }

 private:
  static constexpr size_t kValues = SampleQueue::kBytes / sizeof(float);

  const WorkerId worker_;
  std::vector<float> value_;
  const std::vector<float> gradient_;  // zeros: only that it is pushed counts
  std::optional<SampleQueue> own_;
  bool is_over_ = false;
};

}  // namespace pushpull
