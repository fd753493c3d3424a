// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/worker_reports.h"

#include <algorithm>
#include <utility>

namespace pushpull {

WorkerReports::WorkerReports(WorkerId worker,
                             Executor& executor,
                             WorkerMetrics& metrics,
                             std::function<WorkerProgress()> progress,
                             std::function<void(FromMember)> send)
    : executor_(executor),
      progress_(std::move(progress)),
      send_(std::move(send)),
      statistics_(worker, metrics),
      activity_(worker, executor.Now()) {}

void WorkerReports::SetTensors(const std::vector<PlacedTensor>& tensors) {
  activity_.SetTensors(tensors);
  statistics_.trace().SetTensors(tensors);
}

void WorkerReports::SetPeriod(Duration period) {
  period_ = period;
  executor_.Cancel(timer_);
  timer_ = executor_.RunAfter(period_, [this] {
    SetPeriod(period_);
    SendHeartbeat();
    SendTraceIfOver();
  });
}

void WorkerReports::SetEnding(const Log& log) {
  log.Info("told to end: leaves after this step");
  is_ending_ = true;
  if (period_ > Duration{0}) SendHeartbeat();
}

void WorkerReports::SendHeartbeat() {
  if (const std::optional<Step> step = progress_().step) statistics_.SetStep(*step);
  send_(Heartbeat{TakeStats()});
}

WorkerStats WorkerReports::Finish(Step end_step) {
  statistics_.trace().End();
  SendTraceIfOver();
  statistics_.SetStep(end_step);
  activity_.OnLeaving(executor_.Now());
  return TakeStats();
}

WorkerStats WorkerReports::TakeStats() {
  const WorkerProgress progress = progress_();
  WorkerStats stats = statistics_.TakeReport(
      activity_.Current(progress.chunks, progress.step.value_or(Step{}), executor_.Now()));
  stats.is_ending = is_ending_;
  return stats;
}

void WorkerReports::SendTraceIfOver() {
  for (TraceReport& report : statistics_.trace().TakeIfOver(executor_.Now())) {
    for (TracedPush& push : report.pushes) {
      const uint64_t skipped = progress_().steps_skipped;
      push.step = Step{push.step.value() - std::min(push.step.value(), skipped)};
    }
    send_(std::move(report));
  }
}

}  // namespace pushpull
