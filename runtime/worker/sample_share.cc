// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/sample_share.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/consistency/sample_leases.h"

namespace pushpull {

SampleShare::SampleShare(WorkerId worker, const SampleSource& source)
    : worker_(worker), source_(source), value_(kValues), gradient_(kValues) {
  const std::vector<std::byte> bytes = SampleQueue(source).Encode();
  std::memcpy(value_.data(), bytes.data(), bytes.size());
}

TensorSpec SampleShare::spec() const {
  TensorSpec spec{.name = std::string(kSampleQueueTensor), .dims = {int64_t{kValues}}};
  spec.reduction = Reduction::kSum;
  spec.optimizer.kind = OptimizerKind::kSum;
  spec.optimizer.learning_rate = 0;
  return spec;
}

PushOptions SampleShare::Commit(Report report) {
  is_over_ = is_over_ || (report.are_done && report.must_leave);
  const SampleReport says = report.are_done ? ReportOfDone() : SampleReport::kKeeps;
  return {.samples = static_cast<double>(says),
          .learning_rate = static_cast<double>(source_.num_samples)};
}

SampleReport SampleShare::ReportOfDone() const {
  if (HasAny()) return is_over_ ? SampleReport::kLeaves : SampleReport::kDone;
  return is_over_ ? SampleReport::kLeavesWithout : SampleReport::kAsks;
}

// In modes with common steps an empty share is as good as done.
bool SampleShare::HasAny() const {
  if (!SampleLeases::AreIn(bytes())) return true;
  const absl::StatusOr<StepSamples> share = OfLeases(Step{}, 0);
  return share.ok() && share->count > 0 && share->epoch < source_.epochs;
}

absl::StatusOr<StepSamples> SampleShare::At(const Consistency& mode,
                                            Step next,
                                            uint64_t steps_ahead) const {
  PUSHPULL_ASSIGN_OR_RETURN(StepSamples samples,
                            SampleLeases::AreIn(bytes()) ? OfLeases(next, steps_ahead)
                                                         : OfQueue(mode, next, steps_ahead));
  samples.is_over = is_over_ || samples.epoch >= source_.epochs;
  if (samples.epoch >= source_.epochs) {
    samples.ranges.clear();  // those of an epoch that the program does not want
    samples.count = samples.total = 0;
  }
  samples.has_step = samples.count > 0 || mode.mode != SyncMode::kAsync;
  return samples;
}

absl::StatusOr<StepSamples> SampleShare::OfQueue(const Consistency& mode,
                                                 Step next,
                                                 uint64_t ahead) const {
  PUSHPULL_ASSIGN_OR_RETURN(SampleQueue queue, SampleQueue::Decode(bytes()));
  // A job's first step is divided as its first worker said.
  if (queue.step() > Step{0}) queue.SetNumSamples(static_cast<double>(source_.num_samples));
  if (!is_over_ && queue.epoch() < source_.epochs)
    PUSHPULL_RETURN_IF_ERROR(CheckIsOurs(queue.epoch(), queue.source()));
  if (!mode.is_sync()) {
    // From a checkpoint of Sync: the first push asks for a lease.
    return StepSamples{.step = Step{next.value() + ahead},
                       .epoch = queue.epoch() + std::min<uint64_t>(ahead, 1),
                       .ranges = {},
                       .members = {}};
  }
  for (uint64_t i = 0; i < ahead && queue.epoch() < source_.epochs; ++i) queue.AdvanceAll();
  return queue.ShareOf(worker_, Step{next.value() + ahead});
}

absl::StatusOr<StepSamples> SampleShare::OfLeases(Step next, uint64_t ahead) const {
  PUSHPULL_ASSIGN_OR_RETURN(const SampleLeases leases, SampleLeases::Decode(bytes()));
  if (!is_over_ && leases.epoch() < source_.epochs) {
    SampleSource jobs = leases.source();
    const bool may_change = !leases.has_counted() && jobs.num_samples != source_.num_samples;
    if (may_change) jobs.num_samples = source_.num_samples;  // the next push says so
    PUSHPULL_RETURN_IF_ERROR(CheckIsOurs(leases.epoch(), jobs));
    if (leases.IsTurnedAway(worker_)) {
      return absl::ResourceExhaustedError(
          absl::StrCat(ToString(worker_),
                       " gets no samples: in modes Async and Bounded at most ",
                       SampleLeases::kWorkersMax,
                       " workers share a data set; lower spec.workers.replicas"));
    }
  }
  StepSamples share = leases.ShareOf(worker_, next, ahead);
  if (leases.source().num_samples == source_.num_samples) return share;
  share.ranges.clear();
  share.count = share.total = 0;
  return share;
}

std::shared_ptr<PendingOperation> SampleShare::HoldAsk() {
  held_ask_ = std::make_shared<PendingOperation>("wait for samples");
  return held_ask_;
}

void SampleShare::EndHeldAsk(const absl::Status& why) {
  const std::shared_ptr<PendingOperation> ask = std::exchange(held_ask_, nullptr);
  if (ask == nullptr) return;
  if (why.ok()) {
    ask->Finish();
  } else {
    ask->Fail(why);
  }
}

std::optional<uint64_t> SampleShare::OtherBatch() const {
  SampleSource jobs;
  if (SampleLeases::AreIn(bytes())) {
    const absl::StatusOr<SampleLeases> leases = SampleLeases::Decode(bytes());
    if (!leases.ok()) return std::nullopt;
    jobs = leases->source();
  } else {
    const absl::StatusOr<SampleQueue> queue = SampleQueue::Decode(bytes());
    if (!queue.ok()) return std::nullopt;
    jobs = queue->source();
  }
  if (jobs.is_global_batch || source_.is_global_batch || jobs.batch == source_.batch)
    return std::nullopt;
  return jobs.batch;
}

void WarnOfBatch(const Log& log, std::optional<uint64_t> other) {
  if (!other) return;
  log.Warning("the job keeps the batch that it was begun with; spec.workers.globalBatch changes it",
              {{"samples_per_worker", *other}});
}

absl::Status SampleShare::CheckIsOurs(uint64_t epoch, const SampleSource& jobs) const {
  if (jobs.num_samples != source_.num_samples) {
    return absl::FailedPreconditionError(absl::StrCat(
        "epoch ",
        epoch,
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
