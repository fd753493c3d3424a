// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/sample_share.h"

#include <cstring>
#include <string>

#include "runtime/base/status_macros.h"

namespace pushpull {
namespace {

std::vector<WorkerId> FirstWorkers(uint32_t count) {
  std::vector<WorkerId> workers;
  for (uint32_t i = 0; i < count; ++i) workers.push_back(WorkerId{i});
  return workers;
}

}  // namespace

SampleShare::SampleShare(WorkerId worker, const SampleSource& source)
    : worker_(worker), value_(kValues), gradient_(kValues) {
  const std::vector<std::byte> bytes = SampleQueue(source).Encode();
  std::memcpy(value_.data(), bytes.data(), bytes.size());
}

SampleShare::SampleShare(WorkerId worker, const SampleSource& source, uint32_t workers)
    : worker_(worker), own_(source) {
  own_->SetMembers(FirstWorkers(workers));
}

TensorSpec SampleShare::spec() const {
  TensorSpec spec{.name = std::string(kSampleQueueTensor), .dims = {int64_t{kValues}}};
  spec.reduction = Reduction::kSum;
  spec.optimizer.kind = OptimizerKind::kSum;
  spec.optimizer.learning_rate = 0;
  return spec;
}

double SampleShare::Commit(bool is_released) {
  is_over_ = is_over_ || is_released;
  if (own_) own_->AdvanceAll();
  return is_over_ ? 0 : 1;
}

void SampleShare::SkipTo(Step step) {
  while (own_ && own_->step() < step && !own_->is_finished()) own_->AdvanceAll();
}

absl::StatusOr<StepSamples> SampleShare::At(Step next, uint64_t steps_ahead) const {
  absl::StatusOr<SampleQueue> queue =
      own_ ? *own_ : SampleQueue::Decode(std::as_bytes(std::span(value_)));
  PUSHPULL_RETURN_IF_ERROR(queue.status());
  if (own_) next = own_->step();
  for (uint64_t i = 0; i < steps_ahead && !queue->is_finished(); ++i) queue->AdvanceAll();
  StepSamples samples = queue->ShareOf(worker_, Step{next.value() + steps_ahead});
  samples.is_over = samples.is_over || is_over_;
  return samples;
}

}  // namespace pushpull
