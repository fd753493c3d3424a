// SPDX-License-Identifier: Apache-2.0
//
// A worker's end of the job's position in its data set (consistency/sample_queue.h,
// sample_leases.h): its copy of the value, its push to it in each step, and how many epochs its
// program wants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
#include "runtime/consistency/view.h"
#include "runtime/worker/pending_operation.h"

namespace pushpull {

// Thread-compatible.
class SampleShare {
 public:
  // What a worker says of its samples at the end of a step.
  struct Report {
    bool are_done = true;  // false: it goes on with them
    bool must_leave = false;
  };

  SampleShare(WorkerId worker, const SampleSource& source);

  // Of the tensor to register and to push to.
  TensorSpec spec() const;
  // Its value, which receives answers after registering and after every commit.
  std::span<float> value() { return value_; }
  std::span<const float> gradient() const { return gradient_; }

  // The step is over; a released worker requests no more samples. Returns the options of the push.
  PushOptions Commit(Report report);
  // This worker's samples of the step `steps_ahead` after `next`, if the workers stay the same
  // until then. kDataLoss: the value is not a queue. kFailedPrecondition: the job divides another
  // data set than this program's. kResourceExhausted: too many workers share it.
  absl::StatusOr<StepSamples> At(const Consistency& mode, Step next, uint64_t steps_ahead) const;
  // What the program has been told of its next step.
  void SetTold(const StepSamples& samples) { may_only_ask_ = !samples.has_step; }
  bool may_only_ask() const { return may_only_ask_; }
  // A commit that only asks for samples, during a hold of steps. It ends with the hold, and the
  // worker asks again, because in another mode it may have to make the step.
  std::shared_ptr<PendingOperation> HoldAsk();
  void EndHeldAsk(const absl::Status& why = absl::OkStatus());

  // The job's samples per step and worker, if its program was begun with another number than ours.
  std::optional<uint64_t> OtherBatch() const;
  // Whether it requests no further samples because it was released.
  bool was_released() const { return is_over_; }

 private:
  static constexpr size_t kValues = SampleQueue::kBytes / sizeof(float);

  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(value_)); }
  absl::StatusOr<StepSamples> OfQueue(const Consistency& mode, Step next, uint64_t ahead) const;
  absl::StatusOr<StepSamples> OfLeases(Step next, uint64_t ahead) const;
  SampleReport ReportOfDone() const;
  bool HasAny() const;
  absl::Status CheckIsOurs(uint64_t epoch, const SampleSource& jobs) const;

  const WorkerId worker_;
  const SampleSource source_;  // the program's
  std::vector<float> value_;
  const std::vector<float> gradient_;  // zeros: only the fact that it is pushed counts
  bool is_over_ = false;
  bool may_only_ask_ = false;
  std::shared_ptr<PendingOperation> held_ask_;
};

// Says so if a job has another batch than the worker's program.
void WarnOfBatch(const Log& log, std::optional<uint64_t> other);

}  // namespace pushpull
