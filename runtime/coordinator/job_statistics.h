// SPDX-License-Identifier: Apache-2.0
//
// Aggregates the members' statistics for the job's status: step, samples, sync time, losses.
// Workers report totals since their own start, so the totals of a departed worker are kept and
// those of its replacement are added. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Measures each change in the number of servers: how long it took, how many bytes it moved, how
// long workers waited. Thread-compatible. Bounded: keeps the newest JobStatus::kResizesMax changes.
class ResizeLog {
 public:
  // The members' statistics since the job's start.
  struct Totals {
    Quantiles sync_seconds;
    uint64_t bytes_copied = 0;
  };

  // A member's statistics are at most `report_period` old, so those of a change are complete this
  // long after it has settled.
  explicit ResizeLog(Duration report_period) : report_period_(report_period) {}

  // Closes the resize under way.
  void Begin(SteadyTime now, ResizeStatus resize, Totals totals);
  // To be called often while is_open(). `is_settled`: the servers are present and nothing moves.
  void Update(SteadyTime now, bool is_settled, const Totals& totals);

  // The last resize's numbers may still change.
  bool is_open() const { return !resizes_.empty() && !resizes_.back().is_final; }
  const std::vector<ResizeStatus>& resizes() const { return resizes_; }

 private:
  const Duration report_period_;
  std::vector<ResizeStatus> resizes_;
  SteadyTime began_at_;
  SteadyTime settled_at_;
  Totals before_;
};

// Thread-compatible. Bounded: one entry per member, at most JobStatus::kLossesMax losses and
// JobStatus::kUnevenStepsMax steps.
class JobStatistics {
 public:
  void OnWorker(WorkerId worker, const WorkerStats& stats);
  void OnServer(ServerId server, const ServerStats& stats);
  // The process has ended; its totals are kept.
  void RetireWorker(WorkerId worker);
  void RetireServer(ServerId server);

  Step WorkerStep(WorkerId worker) const;
  // By the worker's process that is there or, if none is, by the last one.
  uint64_t StepsMade(WorkerId worker, bool is_present) const;
  WorkerActivity Activity(WorkerId worker) const;
  // The present worker was told to end.
  bool IsEnding(WorkerId worker) const {
    const auto it = workers_.find(worker);
    return it != workers_.end() && it->second.is_ending;
  }
  // The highest version that some server has reached; a joiner's first step is above it.
  Step HighestVersion() const;
  // The highest step that one of the present workers has reached.
  Step HighestWorkerStep() const;
  ServerStats Server(ServerId server) const;
  // Totals since the job's start.
  ResizeLog::Totals ResizeTotals() const;

  // Fills steps, samples, batch, noise scale, bytes, resends, contributors, uneven steps,
  // quantiles, losses and results of `status`.
  void AddTo(JobStatus& status) const;

 private:
  void UpdateNoise();

  struct Loss {
    double weighted = 0;
    uint64_t samples = 0;
  };
  void AddLoss(const LossPoint& point);
  void AddUneven(Step step);
  static void Accumulate(const WorkerStats& from, WorkerStats& into);
  static void Accumulate(const ServerStats& from, ServerStats& into);

  std::map<WorkerId, WorkerStats> workers_;
  std::map<WorkerId, std::map<std::string, double>> results_;
  std::map<ServerId, ServerStats> servers_;
  WorkerStats retired_;
  std::map<WorkerId, uint64_t> last_steps_made_;  // by the last process that has ended
  ServerStats retired_servers_;
  std::map<Step, Loss> losses_;
  uint64_t batch_ = 0;
  double noise_scale_ = 0;
  uint64_t uneven_count_ = 0;
  std::set<Step> uneven_steps_;  // the newest of the counted steps
  uint64_t loss_stride_ =
      1;  // only steps divisible by it are kept; doubles when there are too many
};

}  // namespace pushpull
