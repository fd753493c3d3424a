// SPDX-License-Identifier: Apache-2.0
//
// What a worker counts and reports: its metrics and the contents of its heartbeats.
#pragma once

#include <optional>
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
  void AddChunkPush(bool is_joint) { metrics_.AddChunkPush(is_joint); }
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
  // `start`: the worker's first step.
  void Begin(Step start) { start_ = start; }
  void SetStep(Step step);
  void SetBatch(uint64_t batch) { stats_.batch = batch; }

  TraceRecorder& trace() { return trace_; }

  // The losses since the last report, and the current values of everything else. Send the result at
  // once: losses are not returned again.
  WorkerStats TakeReport(const WorkerActivity& activity);
  // A session begins. Reports in the previous one may be lost, and a new coordinator has none of
  // them: the next report has all losses that are still known.
  void RepeatLosses();

 private:
  WorkerMetrics& metrics_;
  WorkerStats stats_;
  std::optional<Step> start_;
  LinkMeter links_;
  TraceRecorder trace_;
  std::vector<LossPoint> reported_losses_;  // the newest of earlier reports
};

}  // namespace pushpull
