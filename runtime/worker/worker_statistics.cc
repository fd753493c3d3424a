// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/worker_statistics.h"

#include "runtime/base/keep_newest.h"
#include "runtime/membership/job_status.h"

namespace pushpull {
namespace {

constexpr size_t kReportedLossesMax = JobStatus::kLossesMax;  // a coordinator keeps no more

}  // namespace

void WorkerStatistics::AddSent(absl::string_view channel, uint64_t bytes) {
  stats_.bytes_pushed += bytes;
  metrics_.AddPushed(channel, bytes);
}

void WorkerStatistics::AddReceived(absl::string_view channel, uint64_t bytes) {
  stats_.bytes_pulled += bytes;
  metrics_.AddPulled(channel, bytes);
}

void WorkerStatistics::AddResend() {
  ++stats_.resends;
  metrics_.AddResend();
}

void WorkerStatistics::AddSamples(uint64_t samples) {
  stats_.samples += samples;
  metrics_.AddSamples(samples);
}

void WorkerStatistics::AddSynchronized(const SyncObservation& observation) {
  stats_.sync_seconds.Add(ToSeconds(observation.sync));
  for (size_t i = 0; i < kSyncPhaseCount; ++i)
    stats_.phase_seconds[i].Add(ToSeconds(observation.phases[i]));
  links_.OnStep(observation);
  metrics_.Observe(observation, trace_.TraceOf(observation.number));
  trace_.OnSynchronized(observation.number);
  stats_.steps_made = std::max(stats_.steps_made, stats_.sync_seconds.count());
}

PhaseTimes WorkerStatistics::AddAnswered(const AnsweredPush& push,
                                         const PushTimes& times,
                                         const PublishedTiming& timing) {
  links_.OnAnswer(push.server, times.received, timing, push.offset, push.bytes);
  trace_.OnAnswered(push, times, timing);
  return PhasesOf(times, timing, push.offset);
}

void WorkerStatistics::AddLoss(const LossPoint& loss) {
  stats_.losses.push_back(loss);
  ++stats_.losses_end;
}

void WorkerStatistics::AddUnevenStep(Step step) {
  stats_.uneven_steps.push_back(step);
  KeepNewest(stats_.uneven_steps, WorkerStats::kUnevenStepsMax);
}

void WorkerStatistics::SetStep(Step step) {
  stats_.step = step;
  if (start_ && step > *start_)
    stats_.steps_made = std::max(stats_.steps_made, step.value() - start_->value());
  metrics_.SetStep(step.value());
}

WorkerStats WorkerStatistics::TakeReport(const WorkerActivity& activity) {
  WorkerStats report = stats_;
  report.costs = links_.costs();
  report.activity = activity;
  metrics_.SetLinks(report.costs.links);
  reported_losses_.insert(reported_losses_.end(), stats_.losses.begin(), stats_.losses.end());
  KeepNewest(reported_losses_, kReportedLossesMax);
  stats_.losses.clear();
  return report;
}

void WorkerStatistics::RepeatLosses() {
  stats_.losses.insert(stats_.losses.begin(), reported_losses_.begin(), reported_losses_.end());
  reported_losses_.clear();
}

}  // namespace pushpull
