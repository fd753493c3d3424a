// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/worker_node.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/worker/ring_member.h"

namespace pushpull {
namespace {

std::unique_ptr<JobMember> MakeMember(WorkerNodeOptions options,
                                      const WorkerDependencies& dependencies,
                                      OperationTable& operations,
                                      StateSaves& state,
                                      Departure& departure,
                                      Log log) {
  if (options.ring == nullptr) {
    return std::make_unique<WorkerMember>(
        std::move(options), dependencies, operations, state, departure, std::move(log));
  }
  state.SetConsistency({.mode = SyncMode::kAllReduce});
  return std::make_unique<RingMember>(
      std::move(options), dependencies, operations, departure, std::move(log));
}

}  // namespace

WorkerNode::WorkerNode(WorkerNodeOptions options, WorkerDependencies dependencies, Log log)
    : worker_(options.worker),
      dependencies_(dependencies),
      operations_(options.worker),
      state_(operations_,
             departure_,
             saves_,
             [this] { dependencies_.executor.Post([this] { member_->OnStateDecided(); }); }),
      member_(MakeMember(
          std::move(options), dependencies, operations_, saves_, departure_, std::move(log))) {}

std::shared_ptr<PendingOperation> WorkerNode::Join() {
  auto pending = std::make_shared<PendingOperation>("join");
  dependencies_.executor.Post([this, pending] { member_->Open(pending); });
  return pending;
}

std::shared_ptr<PendingOperation> WorkerNode::Register(
    std::span<const TensorRegistration> tensors) {
  auto pending = std::make_shared<PendingOperation>("register");
  absl::StatusOr<std::vector<RegisteredTensor>> checked = CheckTensors(tensors);
  if (!checked.ok()) {
    pending->Fail(checked.status());
    return pending;
  }
  if (const auto samples = operations_.SampleTensor()) checked->push_back(*samples);
  dependencies_.executor.Post(
      [this, registration = std::make_shared<Registration>(*std::move(checked), pending)] {
        member_->StartRegistration(registration);
      });
  return pending;
}

absl::StatusOr<std::shared_ptr<PendingOperation>> WorkerNode::PushPull(absl::string_view tensor,
                                                                       ConstTensorValues gradient,
                                                                       TensorValues out,
                                                                       const PushOptions& options) {
  return Begin(operations_.MakePush(tensor, gradient, out, options, dependencies_.executor.Now()));
}

absl::StatusOr<std::shared_ptr<PendingOperation>> WorkerNode::Pull(absl::string_view tensor,
                                                                   TensorValues out,
                                                                   Step min_version) {
  return Begin(operations_.MakePull(tensor, out, min_version, dependencies_.executor.Now()));
}

absl::StatusOr<std::shared_ptr<PendingOperation>> WorkerNode::PullOptimizerState(
    absl::string_view tensor, std::span<float> out, Step min_version) {
  return Begin(operations_.MakePull(
      tensor, out, min_version, dependencies_.executor.Now(), OperationTable::Pulled::kState));
}

absl::StatusOr<std::shared_ptr<PendingOperation>> WorkerNode::PushRows(
    absl::string_view tensor,
    std::span<const uint64_t> keys,
    std::span<const float> gradient,
    const PushOptions& options) {
  return Begin(operations_.MakeRows(tensor,
                                    {.keys = keys, .gradient = gradient, .options = options},
                                    dependencies_.executor.Now()));
}

absl::StatusOr<std::shared_ptr<PendingOperation>> WorkerNode::PullRows(
    absl::string_view tensor,
    std::span<const uint64_t> keys,
    std::span<float> out,
    Step min_version) {
  return Begin(operations_.MakeRows(
      tensor,
      {.type = FrameType::kPull, .keys = keys, .out = out, .min_version = min_version},
      dependencies_.executor.Now()));
}

absl::StatusOr<std::shared_ptr<PendingOperation>> WorkerNode::CommitSamples(bool are_done) {
  const bool must_leave = departure_.must_leave() && saves_.MayLeave();
  return Begin(operations_.CommitSamples({.are_done = are_done, .must_leave = must_leave},
                                         dependencies_.executor.Now()));
}

absl::StatusOr<std::shared_ptr<PendingOperation>> WorkerNode::Begin(
    absl::StatusOr<OperationTable::Accepted> accepted) {
  if (absl::IsCancelled(accepted.status())) {
    departure_.SetKnown();
    departure_.SetReplaced();
    Leave();
  }
  PUSHPULL_RETURN_IF_ERROR(accepted.status());
  if (accepted->is_first) dependencies_.executor.Post([this] { member_->RunDue(); });
  return std::move(accepted->pending);
}

absl::StatusOr<std::shared_ptr<ExchangeOperation>> WorkerNode::StartExchange(
    const ExchangeSpec& spec,
    std::span<const std::byte> values,
    Step step,
    const std::string& label) {
  PUSHPULL_RETURN_IF_ERROR(Check(spec));
  if (label.size() > kMessageLabelBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(spec), ": a label of ", label.size(), " bytes, at most ", kMessageLabelBytesMax));
  }
  PUSHPULL_ASSIGN_OR_RETURN(HostBuffer input, HostBuffer::Uninitialized(values.size()));
  std::ranges::copy(values, input.bytes().begin());
  auto operation = std::make_shared<ExchangeOperation>(
      spec,
      step,
      step.value() - (exchange_step().value() - next_step().value()),
      std::move(input),
      label);
  // A message names its other end.
  if (!spec.pair) operation->pending.SetAwaited(operations_.awaited());
  dependencies_.executor.Post([this, operation] { member_->StartExchange(operation); });
  return operation;
}

bool WorkerNode::is_released() {
  const bool must_leave = departure_.must_leave();
  if (must_leave) departure_.SetKnown();
  return must_leave;
}

void WorkerNode::TellToEnd() {
  if (!departure_.RequestEnd()) return;
  operations_.EndSoon();
  dependencies_.executor.Post([this] { member_->OnEndRequested(); });
}

std::shared_ptr<PendingOperation> WorkerNode::Leave() {
  MutexLock lock(leave_mu_);
  if (leave_pending_ != nullptr) return leave_pending_;
  leave_pending_ = std::make_shared<PendingOperation>("leave");
  const OperationTable::SamplesLeft left = operations_.samples_left();
  const bool is_early = left.were_returned || departure_.IsEarly(left.has_more);
  departure_.OnLeave(is_early);
  dependencies_.executor.Post([this,
                               pending = leave_pending_,
                               end_step = operations_.next_step(OperationTable::Counted::kOnWire),
                               is_early] { member_->SendLeave(pending, end_step, is_early); });
  return leave_pending_;
}

void WorkerNode::Share(std::shared_ptr<const SharedMemory> memory) {
  dependencies_.executor.Post(
      [this, memory = std::move(memory)]() mutable { member_->Share(std::move(memory)); });
}

void WorkerNode::ReportLoss(Step step, double loss, uint64_t samples) {
  dependencies_.metrics.SetLoss(loss);
  dependencies_.executor.Post(
      [this, point = LossPoint{step, loss, samples}] { member_->statistics().AddLoss(point); });
}

absl::Status WorkerNode::ReportResult(absl::string_view name, double value) {
  PUSHPULL_RETURN_IF_ERROR(result_names_.Add(name));
  dependencies_.executor.Post(
      [this, name = std::string(name), value] { member_->statistics().SetResult(name, value); });
  return absl::OkStatus();
}

}  // namespace pushpull
