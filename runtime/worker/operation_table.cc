// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/operation_table.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "runtime/base/status_macros.h"
#include "runtime/consistency/push_numbers.h"
#include "runtime/consistency/sample_queue.h"
#include "runtime/tensor/dtype.h"
#include "runtime/worker/use_order.h"

namespace pushpull {
namespace {

absl::Status CheckMayBeInPlace(const std::string& name, const ValueShape& shape) {
  if (IsMaster(shape.dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor \"", name, "\" of ", ToString(shape.dtype), ": in_place is for tensors of float32"));
}

std::span<const std::byte> SourceOf(const ConstTensorValues& gradient, const PushOptions& options) {
  return options.has_gradient ? gradient.bytes() : std::span<const std::byte>();
}

absl::Status CheckNumbers(const std::string& name, const PushOptions& options) {
  const absl::Status numbers = CheckPushNumbers(options.samples, options.learning_rate);
  if (numbers.ok()) return numbers;
  return absl::InvalidArgumentError(absl::StrCat("tensor \"", name, "\": ", numbers.message()));
}

absl::Status CheckRowOptions(absl::string_view name, const OperationTable::RowCall& call) {
  if (call.options.in_place) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor \"", name, "\": in_place is not for pushes of rows"));
  }
  if (call.options.has_gradient || call.keys.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor \"",
                                                 name,
                                                 "\": has_gradient = false with ",
                                                 call.keys.size(),
                                                 " rows: push no keys, or leave it true"));
}

Step Minus(Step step, uint64_t skipped) {
  return Step{step.value() - std::min(step.value(), skipped)};
}

}  // namespace

// ---- called by the program's threads ----

absl::StatusOr<OperationTable::Accepted> OperationTable::MakePush(absl::string_view tensor,
                                                                  ConstTensorValues gradient,
                                                                  TensorValues out,
                                                                  const PushOptions& options,
                                                                  SteadyTime now) {
  MutexLock lock(mu_);
  return MakePushLocked(tensor, gradient, out, options, now);
}

absl::StatusOr<OperationTable::Accepted> OperationTable::MakePushLocked(absl::string_view name,
                                                                        ConstTensorValues gradient,
                                                                        TensorValues out,
                                                                        const PushOptions& options,
                                                                        SteadyTime now) {
  PUSHPULL_ASSIGN_OR_RETURN(const KnownTensor* const tensor,
                            options.has_gradient ? tensors_.FindFor(name, "gradient", gradient)
                                                 : tensors_.FindDense(name));
  if (!out.empty()) PUSHPULL_RETURN_IF_ERROR(CheckFits(*tensor->name, tensor->shape, "out", out));
  if (options.in_place) PUSHPULL_RETURN_IF_ERROR(CheckMayBeInPlace(*tensor->name, tensor->shape));
  return BeginPush(*tensor,
                   {.type = out.empty() ? FrameType::kPush : FrameType::kPushPull,
                    .source = SourceOf(gradient, options),
                    .target = out.bytes(),
                    .takes_in_place = options.in_place && !out.empty()},
                   options,
                   now);
}

absl::StatusOr<OperationTable::Accepted> OperationTable::BeginPush(const KnownTensor& tensor,
                                                                   TensorRequest request,
                                                                   const PushOptions& options,
                                                                   SteadyTime now) {
  PUSHPULL_RETURN_IF_ERROR(CheckNumbers(*tensor.name, options));
  if (!numbers_.MayPush(tensor.index)) {
    return absl::CancelledError(
        "this process was told to end (SIGTERM) and takes no further step: end it with "
        "exit_code()");
  }
  const std::optional<size_t> left_out =
      consistency_.is_sync() ? numbers_.LeftOutBy(tensor.index) : std::nullopt;
  if (left_out) return LeftOut(*left_out, tensor.name.get());
  request.tensor = tensor.index;
  request.has_gradient = options.has_gradient;
  request.step = numbers_.Next(tensor.index);
  request.weight = options.samples;
  request.learning_rate = options.learning_rate;
  request.priority = tensor.priority;
  request.is_kept = tensor.keeps_value;
  request.ready = now;
  request.pending = std::make_shared<PendingOperation>(request.type, tensor.name, request.step);
  request.pending->SetAwaited(awaited_);
  if (numbers_.Take(tensor.index)) return Begin(std::move(request));
  const std::shared_ptr<PendingOperation> pending = request.pending;
  if (absl::c_any_of(waiting_, [&](const auto& it) { return it.tensor == tensor.index; })) {
    pending->Fail(
        absl::FailedPreconditionError("the one before it is still under way: wait for it"));
  } else {
    waiting_.push_back(std::move(request));
  }
  return Accepted{pending};
}

absl::Status OperationTable::EndStep() {
  MutexLock lock(mu_);
  return EndStepLocked(std::nullopt);
}

absl::Status OperationTable::EndStepLocked(std::optional<size_t> last) {
  if (!consistency_.is_sync()) return absl::OkStatus();
  const bool of_all = consistency_.is_led() || consistency_.is_ring();
  const std::optional<size_t> left_out = numbers_.EndStep(of_all, last);
  return left_out ? LeftOut(*left_out, nullptr) : absl::OkStatus();
}

absl::Status OperationTable::LeftOut(size_t tensor, const std::string* pushed) const {
  const std::string& name = tensors_.NameAt(tensor);
  const Step missed = Minus(numbers_.Next(tensor), consistency_.steps_skipped);
  const Step next = Minus(numbers_.Highest(), consistency_.steps_skipped);
  const std::string how =
      pushed == nullptr ? ", which is over"
      : name == *pushed ? ", which is over, and pushes it now"
                        : absl::StrCat(" and pushes \"", *pushed, "\" for step ", next.value());
  return absl::FailedPreconditionError(absl::StrCat(
      "tensor \"",
      name,
      "\": ",
      ToString(worker_),
      " has not pushed it in step ",
      missed.value(),
      how,
      ": push each tensor once in every step, with zeros where there is no gradient, or never"));
}

// Cutting takes time, so it happens outside the lock.
absl::StatusOr<OperationTable::Accepted> OperationTable::MakeRows(absl::string_view name,
                                                                  const RowCall& call,
                                                                  SteadyTime now) {
  PUSHPULL_ASSIGN_OR_RETURN(const RowTensor shape, RowsOf(name));
  PUSHPULL_RETURN_IF_ERROR(CheckRowOptions(name, call));
  const bool is_push = call.type == FrameType::kPush;
  PUSHPULL_ASSIGN_OR_RETURN(std::shared_ptr<const RowRequest> rows,
                            is_push ? CutRowPush(shape, call.keys, call.gradient)
                                    : CutRowPull(shape, call.keys, call.out));
  MutexLock lock(mu_);
  PUSHPULL_ASSIGN_OR_RETURN(const KnownTensor* const tensor, tensors_.FindRows(name));
  TensorRequest request{
      .type = call.type, .source = {}, .target = {}, .ready = now, .rows = std::move(rows)};
  if (is_push) return BeginPush(*tensor, std::move(request), call.options, now);
  TensorRequest pull = PullOf(*tensor, call.min_version, now);
  pull.rows = std::move(request.rows);
  return Begin(std::move(pull));
}

absl::StatusOr<RowTensor> OperationTable::RowsOf(absl::string_view name) const {
  MutexLock lock(mu_);
  PUSHPULL_ASSIGN_OR_RETURN(const KnownTensor* const tensor, tensors_.FindRows(name));
  return *tensor->rows;
}

OperationTable::Accepted OperationTable::Begin(TensorRequest request) {
  Accepted accepted{request.pending, due_.empty()};
  due_.push_back(std::move(request));
  ++num_starting_;
  return accepted;
}

absl::StatusOr<OperationTable::Accepted> OperationTable::MakePull(
    absl::string_view name, TensorValues out, Step min_version, SteadyTime now, Pulled what) {
  MutexLock lock(mu_);
  if (what == Pulled::kState) return MakeStatePull(name, out.floats(), min_version, now);
  PUSHPULL_ASSIGN_OR_RETURN(const KnownTensor* const tensor, tensors_.FindFor(name, "out", out));
  TensorRequest request = PullOf(*tensor, min_version, now);
  request.target = out.bytes();
  return Begin(std::move(request));
}

absl::StatusOr<OperationTable::Accepted> OperationTable::MakeStatePull(absl::string_view name,
                                                                       std::span<float> out,
                                                                       Step min_version,
                                                                       SteadyTime now) {
  PUSHPULL_ASSIGN_OR_RETURN(const KnownTensor* const tensor, tensors_.FindDense(name));
  const uint64_t expected = tensor->shape.num_values * tensor->state_floats;
  if (out.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat("tensor \"",
                                                   name,
                                                   "\": its optimizer has a state of ",
                                                   expected,
                                                   " values, got memory for ",
                                                   out.size()));
  }
  TensorRequest request = PullOf(*tensor, min_version, now);
  request.state_target = std::as_writable_bytes(out);
  if (!out.empty()) return Begin(std::move(request));
  request.pending->Finish();
  return Accepted{request.pending};
}

TensorRequest OperationTable::PullOf(const KnownTensor& tensor,
                                     Step min_version,
                                     SteadyTime now) const {
  auto pending = std::make_shared<PendingOperation>(FrameType::kPull, tensor.name, min_version);
  pending->SetAwaited(awaited_);
  return {.type = FrameType::kPull,
          .tensor = tensor.index,
          .step = min_version,
          .clock = numbers_.Next(tensor.index),
          .source = {},
          .target = {},
          .priority = tensor.priority,
          .ready = now,
          .pending = std::move(pending)};
}

absl::Status OperationTable::UseSamples(SampleSource source) {
  MutexLock lock(mu_);
  if (settings_.global_batch > 0) {
    source.batch = settings_.global_batch;
    source.is_global_batch = true;
  }
  if (source.num_samples == 0 || source.epochs == 0 || source.batch == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("samples, epochs and batch must be above 0, are ",
                     absl::StrJoin({source.num_samples, source.epochs, source.batch}, ", ")));
  }
  if (!tensors_.empty() || samples_) {
    return absl::FailedPreconditionError(
        "UseSamples is called once, before the tensors are registered");
  }
  samples_.emplace(worker_, source);
  return absl::OkStatus();
}

absl::StatusOr<StepSamples> OperationTable::Samples(uint64_t steps_ahead) {
  MutexLock lock(mu_);
  if (!samples_ || tensors_.empty())
    return absl::FailedPreconditionError("Samples needs UseSamples and Register before");
  absl::StatusOr<StepSamples> samples = NextSamples(steps_ahead);
  if (samples.ok() && steps_ahead == 0) samples_->SetTold(*samples);
  return samples;
}

absl::StatusOr<StepSamples> OperationTable::NextSamples(uint64_t steps_ahead) const {
  const auto queue = tensors_.Find(kSampleQueueTensor);
  const Step next = queue.ok() ? numbers_.Next((*queue)->index) : Step{};
  return samples_->At(consistency_, next, steps_ahead);
}

absl::StatusOr<OperationTable::Accepted> OperationTable::CommitSamples(SampleShare::Report report,
                                                                       SteadyTime now) {
  MutexLock lock(mu_);
  if (!samples_)
    return absl::FailedPreconditionError("CommitSamples needs UseSamples and Register before");
  PUSHPULL_ASSIGN_OR_RETURN(const KnownTensor* const queue, tensors_.FindDense(kSampleQueueTensor));
  const bool ends_step = numbers_.Next(queue->index) != numbers_.Highest();
  const bool is_sync = consistency_.is_sync();
  const bool only_asks = !ends_step && waiting_.empty() && (!is_sync || samples_->may_only_ask());
  if (only_asks && (is_sync || numbers_.is_held())) {
    Accepted ask{samples_->HoldAsk()};
    if (is_sync) samples_->EndHeldAsk();  // the mode has changed since
    return ask;
  }
  if (ends_step) PUSHPULL_RETURN_IF_ERROR(EndStepLocked(queue->index));
  PUSHPULL_ASSIGN_OR_RETURN(Accepted accepted,
                            MakePushLocked(kSampleQueueTensor,
                                           samples_->gradient(),
                                           samples_->value(),
                                           samples_->Commit(report),
                                           now));
  if (ends_step) numbers_.EndStep(false);
  // Its number counts for all tensors, so that they stay at the same.
  if (only_asks) numbers_.Begin(tensors_.size(), numbers_.Highest());
  return accepted;
}

std::optional<RegisteredTensor> OperationTable::SampleTensor() {
  MutexLock lock(mu_);
  if (!samples_) return std::nullopt;
  return RegisteredTensor{samples_->spec(), samples_->value(), kSamplesPriority};
}

OperationTable::SamplesLeft OperationTable::samples_left() const {
  MutexLock lock(mu_);
  SamplesLeft left{.were_returned = samples_ && samples_->was_released()};
  if (!samples_ || tensors_.empty()) return left;
  const absl::StatusOr<StepSamples> next = NextSamples(0);
  left.has_more = !next.ok() || !next->is_over;
  return left;
}

Step OperationTable::next_step(Counted counted) const {
  MutexLock lock(mu_);
  const bool is_on_wire = counted == Counted::kOnWire;
  return Minus(numbers_.Highest(), is_on_wire ? 0 : consistency_.steps_skipped);
}

// ---- called by the worker's executor ----

std::optional<uint64_t> OperationTable::Begin(const Registration& registration,
                                              Step start,
                                              const Consistency& consistency) {
  MutexLock lock(mu_);
  tensors_ = KnownTensors(registration);
  start_step_ = Minus(start, consistency.steps_skipped);
  consistency_ = consistency;
  numbers_.Begin(tensors_.size(), start);
  return samples_ ? samples_->OtherBatch() : std::nullopt;
}

void OperationTable::Continue(Step next, const Consistency& consistency) {
  MutexLock lock(mu_);
  consistency_ = consistency;
  numbers_.Begin(tensors_.size(), next);
  numbers_.Resume();
  if (samples_) samples_->EndHeldAsk();
}

void OperationTable::SkipTo(Step next) {
  MutexLock lock(mu_);
  if (numbers_.Highest() != next) numbers_.Begin(tensors_.size(), next);
}

Step OperationTable::Hold(std::optional<Step> until, std::optional<Step> first) {
  MutexLock lock(mu_);
  const Step next = first ? *first : numbers_.Highest();
  numbers_.HoldFrom(until.value_or(next));
  return next;
}

std::vector<TensorRequest> OperationTable::TakeDue() {
  MutexLock lock(mu_);
  std::vector<TensorRequest> due = std::exchange(due_, {});
  for (TensorRequest& request : std::exchange(waiting_, {})) {
    const std::optional<Step> step = numbers_.Take(request.tensor);
    if (step) {
      request.step = *step;
      ++num_starting_;
    }
    (step ? due : waiting_).push_back(std::move(request));
  }
  return due;
}

void OperationTable::FailWaiting(const absl::Status& why) {
  std::vector<TensorRequest> waiting;
  {
    MutexLock lock(mu_);
    waiting = std::exchange(waiting_, {});
    if (samples_) samples_->EndHeldAsk(why);
  }
  for (const TensorRequest& request : waiting) request.pending->Fail(why);
}

}  // namespace pushpull
