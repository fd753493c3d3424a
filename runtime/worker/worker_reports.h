// SPDX-License-Identifier: Apache-2.0
//
// A worker's reports to the coordinator: statistics and current activity with every heartbeat, and
// a trace once it is over.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/executor.h"
#include "runtime/base/ids.h"
#include "runtime/base/log.h"
#include "runtime/membership/control.h"
#include "runtime/worker/activity.h"
#include "runtime/worker/request_table.h"
#include "runtime/worker/worker_metrics.h"
#include "runtime/worker/worker_statistics.h"

namespace pushpull {

// A worker's progress.
struct WorkerProgress {
  const RequestTable& chunks;
  std::optional<Step> step;  // under way, as the program counts; empty: its values are not in place
  uint64_t steps_skipped = 0;  // that the program does not count
};

// Thread-confined to the worker's executor.
class WorkerReports {
 public:
  // The time between heartbeats until the coordinator has set it.
  static constexpr Duration kBeforeWelcome = std::chrono::seconds(1);

  // `executor` and `metrics` outlive this object; `progress` and `send` are not called before the
  // first SetPeriod. `send` may drop a message.
  WorkerReports(WorkerId worker,
                Executor& executor,
                WorkerMetrics& metrics,
                std::function<WorkerProgress()> progress,
                std::function<void(FromMember)> send);
  ~WorkerReports() { executor_.Cancel(timer_); }
  WorkerReports(const WorkerReports&) = delete;
  WorkerReports& operator=(const WorkerReports&) = delete;

  WorkerStatistics& statistics() { return statistics_; }
  ActivityWatch& activity() { return activity_; }
  // The values are in place: `start` is the worker's first step, as the program counts.
  void OnBegun(Step start) {
    statistics_.Begin(start);
    activity_.OnBegun(executor_.Now());
  }
  void SetTensors(const std::vector<PlacedTensor>& tensors);

  // The process was told to end.
  void SetEnding(const Log& log);
  // Sends a heartbeat after each period from now on.
  void SetPeriod(Duration period);
  void SendHeartbeat();
  // `next`: the number on the wire of the step that begins next; empty: not known yet.
  void StartTrace(const TraceSteps& order, std::optional<Step> next) {
    statistics_.trace().Start(order, next, executor_.Now());
  }
  // The worker leaves before this step, as the program counts. Sends any unfinished trace and
  // returns the last statistics.
  WorkerStats Finish(Step end_step);
  // Statistics, which the caller must send at once.
  WorkerStats TakeStats();

 private:
  void SendTraceIfOver();

  Executor& executor_;
  const std::function<WorkerProgress()> progress_;
  const std::function<void(FromMember)> send_;
  WorkerStatistics statistics_;
  ActivityWatch activity_;
  bool is_ending_ = false;
  Duration period_{0};
  Executor::TimerId timer_ = 0;
};

}  // namespace pushpull
