// SPDX-License-Identifier: Apache-2.0
//
// The part of a worker that the program's threads see: its tensors, the number of each push, and
// its samples. Turns the program's calls into requests, which the worker's executor starts. Pushes
// that must not begin yet, because the job's mode is changing, wait here.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "pushpull/job.h"

#include "runtime/base/mutex.h"
#include "runtime/membership/control.h"
#include "runtime/worker/registration.h"
#include "runtime/worker/request_table.h"
#include "runtime/worker/sample_share.h"
#include "runtime/worker/step_numbers.h"

namespace pushpull {

// Type and size of a tensor's gradients and values.
struct ValueShape {
  DType dtype = DType::kFloat32;
  uint64_t num_values = 0;
};

// Thread-safe. Nothing blocks.
class OperationTable {
 public:
  explicit OperationTable(WorkerId worker) : worker_(worker) {}

  // ---- called by the program's threads ----

  // An operation of the program. If `is_first` is set, the executor must call TakeDue.
  struct Accepted {
    std::shared_ptr<PendingOperation> pending;
    bool is_first = false;
  };
  // kCancelled: the worker must leave and has done its last step. Others as for Job::PushPull.
  absl::StatusOr<Accepted> MakePush(absl::string_view tensor,
                                    ConstTensorValues gradient,
                                    TensorValues out,
                                    const PushOptions& options,
                                    SteadyTime now) ABSL_LOCKS_EXCLUDED(mu_);
  // Job::Pull, or Job::PullOptimizerState, which is done at once if the optimizer keeps no state.
  enum class Pulled { kValue, kState };
  absl::StatusOr<Accepted> MakePull(absl::string_view tensor,
                                    TensorValues out,
                                    Step min_version,
                                    SteadyTime now,
                                    Pulled what = Pulled::kValue) ABSL_LOCKS_EXCLUDED(mu_);
  // Job::PushRows where `type` is kPush, Job::PullRows where it is kPull.
  struct RowCall {
    FrameType type = FrameType::kPush;
    std::span<const uint64_t> keys;
    std::span<const float> gradient = {};
    std::span<float> out = {};
    PushOptions options = {};
    Step min_version = {};
  };
  absl::StatusOr<Accepted> MakeRows(absl::string_view tensor, const RowCall& call, SteadyTime now)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status UseSamples(SampleSource source) ABSL_LOCKS_EXCLUDED(mu_);
  // Job::SamplesAhead.
  absl::StatusOr<StepSamples> Samples(uint64_t steps_ahead) const ABSL_LOCKS_EXCLUDED(mu_);
  // A push which reports that the step's samples are done, unless the worker shares them with
  // nobody.
  absl::StatusOr<Accepted> CommitSamples(bool must_leave, SteadyTime now) ABSL_LOCKS_EXCLUDED(mu_);
  // The tensor of the job's sample queue, to be registered with the program's; empty: there is
  // none.
  std::optional<RegisteredTensor> SampleTensor() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether there are further samples for this worker; empty: it uses no samples.
  std::optional<bool> has_more_samples() const ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the worker has returned samples because it had to leave.
  bool returned_samples() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return samples_ && samples_->was_released();
  }

  Step start_step() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return start_step_;
  }
  // The next step, as the program counts.
  Step next_step() const ABSL_LOCKS_EXCLUDED(mu_);
  // The next step, as on the wire: one more than the highest that has begun.
  Step next_number() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return numbers_.Highest();
  }
  uint32_t workers() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return settings_.workers;
  }

  // ---- called by the worker's executor ----

  void SetJob(const JobSettings& settings) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    settings_ = settings;
  }
  // The values are in place: all tensors begin with number `start`, of which the program does not
  // count `skipped` steps. Returns SampleShare::OtherBatch.
  std::optional<uint64_t> Begin(const Registration& registration, Step start, uint64_t skipped)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Another mode is in force: as Begin, and ends the hold.
  void Continue(Step next, uint64_t skipped) ABSL_LOCKS_EXCLUDED(mu_);
  // The job has continued without this worker: all tensors continue with this number.
  void SkipTo(Step next) ABSL_LOCKS_EXCLUDED(mu_);

  // From now on only steps below `until` begin; without it, no further step. `first`: the worker's
  // first step, while its values are not in place. Returns the worker's next step.
  Step Hold(std::optional<Step> until, std::optional<Step> first) ABSL_LOCKS_EXCLUDED(mu_);
  void Resume() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    numbers_.Resume();
  }
  // No step begins after the current one: the worker must leave.
  void EndSoon() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    numbers_.EndSoon();
  }
  // The operations that may begin now, in order.
  std::vector<TensorRequest> TakeDue() ABSL_LOCKS_EXCLUDED(mu_);
  // This many of the operations that TakeDue returned have been started.
  void OnStarted(size_t count) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    num_starting_ -= count;
  }
  // Every step below the hold has begun, and every due operation has been started.
  bool IsDrained() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return num_starting_ == 0 && numbers_.IsAtHold();
  }
  // Fails the waiting pushes.
  void FailWaiting(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Tensor {
    std::shared_ptr<const std::string> name;
    size_t index = 0;
    ValueShape shape;
    size_t state_floats = 0;  // optimizer state, per value
    uint8_t priority = 0;
    bool keeps_value = true;
    Reduction reduction = Reduction::kMean;
    std::optional<RowTensor> rows = {};
  };

  absl::StatusOr<Accepted> MakePushLocked(absl::string_view name,
                                          ConstTensorValues gradient,
                                          TensorValues out,
                                          const PushOptions& options,
                                          SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Accepted> BeginPush(const Tensor& tensor,
                                     TensorRequest values,
                                     const PushOptions& options,
                                     SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<const Tensor*> FindRows(absl::string_view name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<const Tensor*> FindDense(absl::string_view name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<RowTensor> RowsOf(absl::string_view name) const ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<Accepted> MakeStatePull(absl::string_view tensor,
                                         std::span<float> out,
                                         Step min_version,
                                         SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Accepted Begin(TensorRequest request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<const Tensor*> Find(absl::string_view name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // kInvalidArgument: `values`, a gradient or `out`, have the wrong number or type.
  absl::StatusOr<const Tensor*> FindFor(absl::string_view name,
                                        absl::string_view what,
                                        const ConstTensorValues& values) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The part of a request that all kinds of pulls have in common.
  TensorRequest PullOf(const Tensor& tensor, Step min_version, SteadyTime now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<StepSamples> NextSamples(uint64_t steps_ahead) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const WorkerId worker_;
  mutable Mutex mu_;
  absl::flat_hash_map<std::string, Tensor> tensors_ ABSL_GUARDED_BY(mu_);
  StepNumbers numbers_ ABSL_GUARDED_BY(mu_);
  std::vector<TensorRequest> due_ ABSL_GUARDED_BY(mu_);      // for the executor to start
  std::vector<TensorRequest> waiting_ ABSL_GUARDED_BY(mu_);  // at most one per tensor
  size_t num_starting_ ABSL_GUARDED_BY(mu_) = 0;             // due, or taken but not started
  Step start_step_ ABSL_GUARDED_BY(mu_);
  uint64_t steps_skipped_ ABSL_GUARDED_BY(mu_) = 0;  // under the mode in force
  JobSettings settings_ ABSL_GUARDED_BY(mu_);
  // Its value is written by the executor while an operation on it is under way.
  std::optional<SampleShare> samples_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
