// SPDX-License-Identifier: Apache-2.0
//
// A worker's end of the sample queue (consistency/sample_queue.h). Divided: the version of the
// job's queue that the worker has, and what the worker says to it with each step. Own: a queue that
// only this worker looks at, as if all workers were there all the time and went at its pace; for
// modes in which there are no steps that all take.
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
  // The own part of one of `workers`.
  SampleShare(WorkerId worker, const SampleSource& source, uint32_t workers);

  // Whether there is a tensor to register and to push to.
  bool is_divided() const { return !own_; }
  TensorSpec spec() const;
  // The queue's value, an answer's target: the job's after registering and after every commit.
  std::span<float> value() { return value_; }
  std::span<const float> gradient() const { return gradient_; }

  // The step's samples are done; a worker that is released asks for no more. Returns the weight of
  // the push to the queue where it is divided.
  double Commit(bool is_released);
  // Steps that an earlier process of the worker has done. Own part only.
  void SkipTo(Step step);
  // This worker's part of `step`; of its next one where it is its own. kDataLoss: the value is not
  // a queue.
  absl::StatusOr<StepSamples> At(Step step) const;
  // It has asked for no further samples because it was released.
  bool was_released() const { return is_over_; }

 private:
  static constexpr size_t kValues = SampleQueue::kBytes / sizeof(float);

  const WorkerId worker_;
  std::vector<float> value_;
  const std::vector<float> gradient_;  // zeros: what is pushed is the fact
  std::optional<SampleQueue> own_;
  bool is_over_ = false;
};

}  // namespace pushpull
