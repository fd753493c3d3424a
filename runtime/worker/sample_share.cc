// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/sample_share.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

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
    : worker_(worker), source_(source), value_(kValues), gradient_(kValues) {
  const std::vector<std::byte> bytes = SampleQueue(source).Encode();
  std::memcpy(value_.data(), bytes.data(), bytes.size());
}

SampleShare::SampleShare(WorkerId worker, const SampleSource& source, uint32_t workers)
    : worker_(worker), source_(source), own_(source) {
  own_->SetMembers(FirstWorkers(workers));
}

TensorSpec SampleShare::spec() const {
  TensorSpec spec{.name = std::string(kSampleQueueTensor), .dims = {int64_t{kValues}}};
  spec.reduction = Reduction::kSum;
  spec.optimizer.kind = OptimizerKind::kSum;
  spec.optimizer.learning_rate = 0;
  return spec;
}

PushOptions SampleShare::Commit(Report report) {
  PushOptions options{.samples = kKeepsSamples,
                      .learning_rate = static_cast<double>(source_.num_samples)};
  if (!report.are_done) return options;
  is_over_ = is_over_ || report.must_leave;
  if (own_) own_->AdvanceAll();
  options.samples = is_over_ ? 0 : 1;
  return options;
}

std::optional<uint64_t> SampleShare::BeginAt(Step step) {
  while (own_ && own_->step() < step && own_->epoch() < source_.epochs) own_->AdvanceAll();
  return OtherBatch();
}

absl::StatusOr<StepSamples> SampleShare::At(Step next, uint64_t steps_ahead) const {
  absl::StatusOr<SampleQueue> queue =
      own_ ? *own_ : SampleQueue::Decode(std::as_bytes(std::span(value_)));
  PUSHPULL_RETURN_IF_ERROR(queue.status());
  if (own_) next = own_->step();
  // A job's first step is divided as its first worker said.
  if (queue->step() > Step{0}) queue->SetNumSamples(static_cast<double>(source_.num_samples));
  const bool is_over = is_over_ || queue->epoch() >= source_.epochs;
  if (!is_over) PUSHPULL_RETURN_IF_ERROR(CheckIsOurs(*queue));
  for (uint64_t i = 0; i < steps_ahead && queue->epoch() < source_.epochs; ++i) queue->AdvanceAll();
  StepSamples samples = queue->ShareOf(worker_, Step{next.value() + steps_ahead});
  samples.is_over = is_over_ || samples.epoch >= source_.epochs;
  if (samples.epoch < source_.epochs) return samples;
  samples.ranges.clear();  // those of an epoch that the program does not want
  samples.count = samples.total = 0;
  return samples;
}

std::optional<uint64_t> SampleShare::OtherBatch() const {
  if (own_) return std::nullopt;
  const absl::StatusOr<SampleQueue> queue = SampleQueue::Decode(std::as_bytes(std::span(value_)));
  if (!queue.ok() || queue->source().is_global_batch || source_.is_global_batch)
    return std::nullopt;
  const uint64_t batch = queue->source().batch;
  return batch == source_.batch ? std::nullopt : std::optional(batch);
}

void WarnOfBatch(const Log& log, std::optional<uint64_t> other) {
  if (!other) return;
  log.Warning("the job keeps the batch that it was begun with; spec.workers.globalBatch changes it",
              {{"samples_per_worker", *other}});
}

absl::Status SampleShare::CheckIsOurs(const SampleQueue& queue) const {
  const SampleSource& jobs = queue.source();
  if (jobs.num_samples != source_.num_samples) {
    return absl::FailedPreconditionError(absl::StrCat(
        "epoch ",
        queue.epoch(),
        " of the job has ",
        jobs.num_samples,
        " samples, this program's data set ",
        source_.num_samples,
        ": all workers need the same data set, and another size counts from the next epoch on; "
        "end this epoch with the data set that it began with, resume from a checkpoint between "
        "two epochs (spec.checkpoint.restoreFrom), or begin anew under another metadata.name"));
  }
  if (jobs.drops_last != source_.drops_last) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job was begun with drop_last=",
                     jobs.drops_last ? "True" : "False",
                     ", this program says ",
                     source_.drops_last ? "True" : "False",
                     ": keep it, or begin anew under another metadata.name"));
  }
  return absl::OkStatus();
}

}  // namespace pushpull
