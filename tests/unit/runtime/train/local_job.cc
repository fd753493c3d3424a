// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/runtime/train/local_job.h"

#include <cmath>

#include "runtime/worker/pending_operation.h"

namespace pushpull {

absl::Status LocalJob::Register(std::span<const TensorRegistration> tensors, Deadline) {
  for (const TensorRegistration& tensor : tensors) record_.specs.push_back(tensor.spec);
  return absl::OkStatus();
}

absl::StatusOr<std::span<float>> LocalJob::AllocateBuffer(size_t num_values) {
  return buffers_.emplace_back(num_values);
}

absl::StatusOr<PushHandle> LocalJob::PushPull(absl::string_view tensor,
                                              ConstTensorValues gradient,
                                              TensorValues out,
                                              const PushOptions& options) {
  const std::span<const float> pushed = gradient.floats();
  record_.pushes.push_back(
      {std::string(tensor), std::vector<float>(pushed.begin(), pushed.end()), options});
  for (size_t i = 0; i < out.floats().size(); ++i) {
    if (std::isfinite(pushed[i]))
      out.floats()[i] -= static_cast<float>(options.learning_rate) * pushed[i];
  }
  auto pending = std::make_shared<PendingOperation>("push_pull");
  if (options_.push_result.ok()) {
    pending->Finish();
  } else {
    pending->Fail(options_.push_result);
  }
  return PushHandle(std::move(pending));
}

absl::StatusOr<PushHandle> LocalJob::Pull(absl::string_view, TensorValues, Step) {
  return absl::UnimplementedError("the trainer never pulls");
}

absl::StatusOr<PushHandle> LocalJob::PullOptimizerState(absl::string_view, std::span<float>, Step) {
  return absl::UnimplementedError("the trainer saves no state");
}

absl::StatusOr<PushHandle> LocalJob::PushRows(absl::string_view,
                                              std::span<const uint64_t>,
                                              std::span<const float>,
                                              const PushOptions&) {
  return absl::UnimplementedError("the trainer has no rows");
}

absl::StatusOr<PushHandle> LocalJob::PullRows(absl::string_view,
                                              std::span<const uint64_t>,
                                              std::span<float>,
                                              Step) {
  return absl::UnimplementedError("the trainer has no rows");
}

absl::Status LocalJob::UseSamples(const SampleSource& source) {
  epochs_ = source.epochs;
  queue_.emplace(source);
  queue_->SetMembers(Everybody());
  for (uint64_t step = 0; step < options_.start_step.value(); ++step) Advance();
  return absl::OkStatus();
}

absl::StatusOr<StepSamples> LocalJob::Samples(uint64_t ahead) const {
  if (ahead > 0) return absl::UnimplementedError("the trainer loads nothing ahead");
  StepSamples samples = queue_->ShareOf(options_.worker, queue_->step());
  samples.is_over = samples.epoch >= epochs_;
  return samples;
}

absl::StatusOr<PushHandle> LocalJob::CommitSamples(bool /*are_done*/) {
  Advance();
  auto pending = std::make_shared<PendingOperation>("commit");
  pending->Finish();
  return PushHandle(std::move(pending));
}

std::vector<WorkerId> LocalJob::Everybody() const {
  std::vector<WorkerId> workers;
  for (uint32_t i = 0; i < options_.workers; ++i) workers.push_back(WorkerId{i});
  return workers;
}

void LocalJob::Advance() {
  queue_->AdvanceAll();
}

void LocalJob::ReportLoss(Step step, double loss, uint64_t) {
  record_.steps.push_back(step);
  record_.losses.push_back(loss);
}

absl::Status LocalJob::ReportResult(absl::string_view name, double value) {
  record_.results[std::string(name)] = value;
  return absl::OkStatus();
}

absl::Status LocalJob::Leave(Deadline) {
  record_.has_left = true;
  return absl::OkStatus();
}

}  // namespace pushpull
