// SPDX-License-Identifier: Apache-2.0
//
// A worker as its program sees it, without threads of its own: everything runs on one executor, and
// what the program waits for is a PendingOperation. job.cc gives it a real thread, sockets and
// metrics; a test gives it a fake clock.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/job.h"

#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/worker/departure.h"
#include "runtime/worker/operation_table.h"
#include "runtime/worker/pending_operation.h"
#include "runtime/worker/result_names.h"
#include "runtime/worker/state_saves.h"
#include "runtime/worker/worker_member.h"
#include "runtime/worker/worker_state.h"

namespace pushpull {

// Public functions may be called from any thread and never block; pushpull/job.h documents the
// functions of the same names. Destroyed on its executor, or after that has stopped.
class WorkerNode {
 public:
  WorkerNode(WorkerNodeOptions options, WorkerDependencies dependencies, Log log);

  std::shared_ptr<PendingOperation> Join();
  // The caller keeps `tensors` and their values alive until the operation is done.
  std::shared_ptr<PendingOperation> Register(std::span<const TensorRegistration> tensors);
  absl::StatusOr<std::shared_ptr<PendingOperation>> PushPull(absl::string_view tensor,
                                                             ConstTensorValues gradient,
                                                             TensorValues out,
                                                             const PushOptions& options);
  absl::StatusOr<std::shared_ptr<PendingOperation>> Pull(absl::string_view tensor,
                                                         TensorValues out,
                                                         Step min_version);
  absl::StatusOr<std::shared_ptr<PendingOperation>> PullOptimizerState(absl::string_view tensor,
                                                                       std::span<float> out,
                                                                       Step min_version);
  absl::StatusOr<std::shared_ptr<PendingOperation>> PushRows(absl::string_view tensor,
                                                             std::span<const uint64_t> keys,
                                                             std::span<const float> gradient,
                                                             const PushOptions& options);
  absl::StatusOr<std::shared_ptr<PendingOperation>> PullRows(absl::string_view tensor,
                                                             std::span<const uint64_t> keys,
                                                             std::span<float> out,
                                                             Step min_version);
  // For UseSamples, Samples and EndStep.
  OperationTable& operations() { return operations_; }
  absl::StatusOr<std::shared_ptr<PendingOperation>> CommitSamples(bool are_done = true);
  // Starts one exchange of collectives (pushpull/collectives.h) in `step`, as numbered by
  // exchange_step; `values` are copied. One at a time, plus one message per pair.
  //
  //   kInvalidArgument, kResourceExhausted  as Collectives
  absl::StatusOr<std::shared_ptr<ExchangeOperation>> StartExchange(
      const ExchangeSpec& spec,
      std::span<const std::byte> values,
      Step step,
      const std::string& label = "");
  // One of the program's steps, by default the next, as exchanges number it.
  Step exchange_step(std::optional<Step> step = std::nullopt) const {
    const Step next = operations_.next_step(OperationTable::Counted::kOnWire);
    if (!step) return next;
    return Step{step->value() + (next.value() - next_step().value())};
  }
  ProgramState& state() { return state_; }
  bool is_released();
  void TellToEnd();
  const Departure& departure() const { return departure_; }
  WorkerId worker() const { return worker_; }
  std::shared_ptr<PendingOperation> Leave() ABSL_LOCKS_EXCLUDED(leave_mu_);

  // Only after Join.
  void Share(std::shared_ptr<const SharedMemory> memory);

  void ReportLoss(Step step, double loss, uint64_t samples);
  absl::Status ReportResult(absl::string_view name, double value);
  // For WorkerTracing.
  TraceRecorder& trace() { return member_->statistics().trace(); }

  Step start_step() const { return operations_.start_step(); }
  Step next_step() const { return operations_.next_step(); }
  uint32_t workers() const { return operations_.workers(); }

 private:
  // Has the executor start what was accepted, unless that has to wait for ResumeSteps.
  absl::StatusOr<std::shared_ptr<PendingOperation>> Begin(
      absl::StatusOr<OperationTable::Accepted> accepted);

  const WorkerId worker_;
  const WorkerDependencies dependencies_;
  OperationTable operations_;
  StateSaves saves_;
  Departure departure_;
  WorkerState state_;
  ResultNames result_names_;
  Mutex leave_mu_;
  std::shared_ptr<PendingOperation> leave_pending_ ABSL_GUARDED_BY(leave_mu_);
  const std::unique_ptr<JobMember> member_;  // on the executor only
};

}  // namespace pushpull
