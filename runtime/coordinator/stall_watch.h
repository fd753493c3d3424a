// SPDX-License-Identifier: Apache-2.0
//
// Combines the servers' reports about a step that does not complete into one line: the step, the
// missing workers, a tensor that waits for them, what they are doing, and which workers wait. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Thread-compatible.
class StallWatch {
 public:
  // A server's latest report; none: nothing is waiting there.
  void OnServer(ServerId server, const std::optional<Stall>& stall);
  void Remove(ServerId server) { stalls_.erase(server); }
  // What a worker's program is doing, from its latest report.
  void OnWorker(WorkerId worker, const WorkerActivity& activity) { activities_[worker] = activity; }
  void Remove(WorkerId worker) { activities_.erase(worker); }

  // The lowest waiting step, with all workers missing from it, what they are doing, and the workers
  // that wait; each worker is in one list only. None while steps proceed.
  std::optional<Stall> Current() const;

  struct News {
    bool has_begun = false;  // else it is over
    std::string text;
    std::vector<WorkerId> missing = {};  // that the step waits for
  };
  // What to log now: once per step and set of missing workers, and once when the stall is over.
  std::optional<News> Take();

 private:
  std::string Describe(const std::vector<WorkerId>& missing) const;

  std::map<ServerId, Stall> stalls_;
  std::map<WorkerId, WorkerActivity> activities_;
  std::optional<Stall> said_;
};

}  // namespace pushpull
