// SPDX-License-Identifier: Apache-2.0
//
// What a worker counts and reports: its metrics, and what its heartbeats carry.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/worker/link_meter.h"
#include "runtime/worker/sync_meter.h"
#include "runtime/worker/trace_recorder.h"
#include "runtime/worker/worker_metrics.h"

namespace pushpull {

// Thread-confined to the worker's executor.
class WorkerStatistics {
 public:
  // `metrics` outlives this object.
  WorkerStatistics(WorkerId worker, WorkerMetrics& metrics) : metrics_(metrics), trace_(worker) {}

  void AddSent(absl::string_view channel, uint64_t bytes);
  void AddReceived(absl::string_view channel, uint64_t bytes);
  void AddResend();
  void AddOverflows(uint64_t values) { metrics_.AddOverflows(values); }
  void AddSamples(uint64_t samples);
  void AddSynchronized(const SyncObservation& observation);
  // Returns where the time of the push went.
  PhaseTimes AddAnswered(const AnsweredPush& push,
                         const PushTimes& times,
                         const PublishedTiming& timing);
  void AddUnevenStep(Step step);
  void AddLoss(const LossPoint& loss);
  void SetResult(const std::string& name, double value) { stats_.results[name] = value; }
  void SetStep(Step step);
  void SetBatch(uint64_t batch) { stats_.batch = batch; }

  TraceRecorder& trace() { return trace_; }

  // The losses since the last report, and the present values of everything else. They are to be
  // sent at once: what is returned here is not returned again.
  WorkerStats TakeReport(const WorkerActivity& activity);
  // A session begins. What an earlier one was to carry may be lost, and another coordinator has had
  // nothing: the next report has all losses that are still known.
  void RepeatLosses();

 private:
  WorkerMetrics& metrics_;
  WorkerStats stats_;
  LinkMeter links_;
  TraceRecorder trace_;
  std::vector<LossPoint> reported_losses_;  // the newest of earlier reports
};

}  // namespace pushpull
