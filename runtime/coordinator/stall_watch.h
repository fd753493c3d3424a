// SPDX-License-Identifier: Apache-2.0
//
// Combines the members' reports about a step that does not complete: the step, the missing workers,
// a tensor that waits for them, what they are doing, and which workers wait. Servers know who has
// pushed what; who is in a collective, and in mode AllReduce who has pushed, the workers report.
// What lasts is a stall, to be logged; whoever waits is told at once for whom. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Thread-compatible.
class StallWatch {
 public:
  // `limit`: spec.sync.stallSeconds.
  explicit StallWatch(Duration limit) : limit_(limit) {}

  // A server's latest report; none: nothing is waiting there. Returns whether something is, or was
  // at its report before.
  bool OnServer(ServerId server, const std::optional<Stall>& stall);
  void Remove(ServerId server) { stalls_.erase(server); }
  // What a worker's program is doing, from its latest report.
  void OnWorker(SteadyTime now, WorkerId worker, const WorkerActivity& activity) {
    reports_[worker] = {activity, now};
  }
  void Remove(WorkerId worker) { reports_.erase(worker); }

  // The lowest step that has waited for `limit`, with all workers missing from it, what they are
  // doing, and the workers that wait; each worker is in one list only. None while steps proceed.
  std::optional<Stall> Current(SteadyTime now) const { return Lowest(now, limit_); }

  struct News {
    bool has_begun = false;  // else it is over
    std::string text;
    std::vector<WorkerId> missing = {};  // that the step waits for
  };
  // What to log now: once per step and set of missing workers, and once when the stall is over.
  std::optional<News> Take(SteadyTime now);

  // Whom each worker waits for, where that has changed since the last call.
  std::vector<std::pair<WorkerId, StepWaits>> TakeWaits(SteadyTime now);

 private:
  struct Report {
    WorkerActivity activity;
    SteadyTime at;
  };

  std::optional<Stall> Lowest(SteadyTime now, Duration at_least) const;
  std::optional<Stall> OfServers(Duration at_least) const;
  // Of a collective, or in mode AllReduce of a step.
  std::optional<Stall> OfWorkers(SteadyTime now, Duration at_least) const;
  std::string Describe(SteadyTime now, const std::vector<WorkerId>& missing) const;

  const Duration limit_;
  std::map<ServerId, Stall> stalls_;
  std::map<WorkerId, Report> reports_;
  std::optional<Stall> said_;
  std::map<WorkerId, StepWaits> told_;  // without those that wait for nobody
};

}  // namespace pushpull
