// SPDX-License-Identifier: Apache-2.0
//
// A worker's end of the sample queue (consistency/sample_queue.h), which knows how many epochs its
// program wants. Divided: the worker's copy of
// the job's queue, which the servers divide among the workers, and the worker's push to it in each
// step. Own: a private queue, which advances as if all workers were always present and equally
// fast; for modes without common steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/job.h"
#include "pushpull/tensor_spec.h"

#include "runtime/base/ids.h"
#include "runtime/base/log.h"
#include "runtime/consistency/sample_queue.h"

namespace pushpull {

// Thread-compatible.
class SampleShare {
 public:
  // What a worker says of its samples at the end of a step.
  struct Report {
    bool are_done = true;  // false: it goes on with them
    bool must_leave = false;
  };

  // A divided queue.
  SampleShare(WorkerId worker, const SampleSource& source);
  // An own queue, for one of `workers`.
  SampleShare(WorkerId worker, const SampleSource& source, uint32_t workers);

  // Whether there is a tensor to register and to push to.
  bool is_divided() const { return !own_; }
  TensorSpec spec() const;
  // The queue's value, which receives answers after registering and after every commit.
  std::span<float> value() { return value_; }
  std::span<const float> gradient() const { return gradient_; }

  // The step is over; a released worker requests no more samples. Returns the options of the push
  // to a divided queue.
  PushOptions Commit(Report report);
  // The worker begins with this step, and the value of a divided queue is in place; an own queue
  // skips the steps that an earlier process of the worker has completed. Returns OtherBatch.
  std::optional<uint64_t> BeginAt(Step step);
  // This worker's samples of the step `steps_ahead` after `next`, if the workers stay the same
  // until then. With an own queue, counts from that queue's next step. kDataLoss: the value is not
  // a queue. kFailedPrecondition: the job divides another data set than this program's.
  absl::StatusOr<StepSamples> At(Step next, uint64_t steps_ahead) const;
  // The job's samples per step and worker, if its program was begun with another number than ours.
  std::optional<uint64_t> OtherBatch() const;
  // Whether it requests no further samples because it was released.
  bool was_released() const { return is_over_; }

 private:
  static constexpr size_t kValues = SampleQueue::kBytes / sizeof(float);

  absl::Status CheckIsOurs(const SampleQueue& queue) const;

  const WorkerId worker_;
  const SampleSource source_;  // the program's
  std::vector<float> value_;
  const std::vector<float> gradient_;  // zeros: only the fact that it is pushed counts
  std::optional<SampleQueue> own_;
  bool is_over_ = false;
};

// Says so if a job has another batch than the worker's program.
void WarnOfBatch(const Log& log, std::optional<uint64_t> other);

}  // namespace pushpull
