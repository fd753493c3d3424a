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
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "pushpull/job.h"

#include "runtime/base/mutex.h"
#include "runtime/consistency/view.h"
#include "runtime/membership/control.h"
#include "runtime/worker/awaited_workers.h"
#include "runtime/worker/known_tensors.h"
#include "runtime/worker/registration.h"
#include "runtime/worker/request_table.h"
#include "runtime/worker/sample_share.h"
#include "runtime/worker/step_numbers.h"

namespace pushpull {

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
  // kCancelled: the worker must leave and has done its last step. kFailedPrecondition: this push
  // would leave a tensor out of a step. Others as for Job::PushPull.
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
  // Job::EndStep.
  absl::Status EndStep() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status UseSamples(SampleSource source) ABSL_LOCKS_EXCLUDED(mu_);
  // Job::Samples.
  absl::StatusOr<StepSamples> Samples(uint64_t steps_ahead) ABSL_LOCKS_EXCLUDED(mu_);
  // A push which reports that the step's samples are done.
  absl::StatusOr<Accepted> CommitSamples(SampleShare::Report report, SteadyTime now)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The tensor of the job's sample queue, to be registered with the program's; empty: there is
  // none.
  std::optional<RegisteredTensor> SampleTensor() ABSL_LOCKS_EXCLUDED(mu_);
  struct SamplesLeft {
    std::optional<bool> has_more = {};  // whether this worker has further ones; empty: it uses none
    bool were_returned = false;         // it has returned some because it had to leave
  };
  SamplesLeft samples_left() const ABSL_LOCKS_EXCLUDED(mu_);

  Step start_step() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return start_step_;
  }
  // The next step: one more than the highest that has begun.
  enum class Counted { kByProgram, kOnWire };
  Step next_step(Counted counted = Counted::kByProgram) const ABSL_LOCKS_EXCLUDED(mu_);
  uint32_t workers() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return settings_.workers;
  }

  // The workers that all operations wait for.
  std::shared_ptr<AwaitedWorkers> awaited() const { return awaited_; }

  // ---- called by the worker's executor ----

  void SetJob(const JobSettings& settings) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    settings_ = settings;
  }
  // The values are in place: all tensors begin with number `start`. Returns
  // SampleShare::OtherBatch.
  std::optional<uint64_t> Begin(const Registration& registration,
                                Step start,
                                const Consistency& consistency) ABSL_LOCKS_EXCLUDED(mu_);
  // Another mode is in force: as Begin, and ends the hold.
  void Continue(Step next, const Consistency& consistency) ABSL_LOCKS_EXCLUDED(mu_);
  // The job has continued without this worker: all tensors continue with this number.
  void SkipTo(Step next) ABSL_LOCKS_EXCLUDED(mu_);

  // From now on only steps below `until` begin; without it, no further step. `first`: the worker's
  // first step, while its values are not in place. Returns the worker's next step.
  Step Hold(std::optional<Step> until, std::optional<Step> first) ABSL_LOCKS_EXCLUDED(mu_);
  void Resume() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    numbers_.Resume();
    if (samples_) samples_->EndHeldAsk();
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
  absl::StatusOr<Accepted> MakePushLocked(absl::string_view name,
                                          ConstTensorValues gradient,
                                          TensorValues out,
                                          const PushOptions& options,
                                          SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Accepted> BeginPush(const KnownTensor& tensor,
                                     TensorRequest values,
                                     const PushOptions& options,
                                     SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status EndStepLocked(std::optional<size_t> last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The error of a push of `pushed` that leaves `tensor` out of a step; null: of the step's end.
  absl::Status LeftOut(size_t tensor, const std::string* pushed) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<RowTensor> RowsOf(absl::string_view name) const ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<Accepted> MakeStatePull(absl::string_view tensor,
                                         std::span<float> out,
                                         Step min_version,
                                         SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Accepted Begin(TensorRequest request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The part of a request that all kinds of pulls have in common.
  TensorRequest PullOf(const KnownTensor& tensor, Step min_version, SteadyTime now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<StepSamples> NextSamples(uint64_t steps_ahead) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const WorkerId worker_;
  const std::shared_ptr<AwaitedWorkers> awaited_ = std::make_shared<AwaitedWorkers>();
  mutable Mutex mu_;
  KnownTensors tensors_ ABSL_GUARDED_BY(mu_);
  StepNumbers numbers_ ABSL_GUARDED_BY(mu_);
  std::vector<TensorRequest> due_ ABSL_GUARDED_BY(mu_);      // for the executor to start
  std::vector<TensorRequest> waiting_ ABSL_GUARDED_BY(mu_);  // at most one per tensor
  size_t num_starting_ ABSL_GUARDED_BY(mu_) = 0;             // due, or taken but not started
  Step start_step_ ABSL_GUARDED_BY(mu_);
  Consistency consistency_ ABSL_GUARDED_BY(mu_);
  JobSettings settings_ ABSL_GUARDED_BY(mu_);
  // Its value is written by the executor while an operation on it is under way.
  std::optional<SampleShare> samples_ ABSL_GUARDED_BY(mu_);
};

}  // namespace pushpull
