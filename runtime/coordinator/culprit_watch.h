// SPDX-License-Identifier: Apache-2.0
//
// Finds what holds up a job's steps: a worker, a server or a link that is slower than the others
// and costs time. The workers report where the time of their steps went (worker/link_meter.h); this
// compares the last few seconds of all of them. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Means over one worker's steps; seconds and bytes are per step.
struct LinkPace {
  ServerId server;
  double bytes = 0;
  double link_seconds = 0;
  double server_seconds = 0;
};
struct WorkerPace {
  WorkerId worker;
  double step_seconds = 0;
  double own_seconds = 0;
  double wait_seconds = 0;
  std::vector<LinkPace> links;  // by server, ascending
};

// Fraction of time in which a server's lanes have work, even if they are not scheduled.
using BusyShares = std::map<ServerId, double>;

// A culprit costs at least `share` of a step and is slower by at least the ratio for its kind.
struct CulpritLimits {
  double share = 0.15;
  double worker_ratio = 1.25;
  double server_ratio = 2;  // of the time that a step's gradients spend in a server
  double link_ratio = 2;    // of the seconds per byte
};

// The members that are slow compared with the median of the others, most costly first:
//
//   worker  its own part of a step takes longer, and others wait for it
//   server  gradients stay in it longer; or gradients and values take longer on all of its links
//           while its lanes are busier: they get too little CPU time
//   link    bytes take longer: on all links of a worker, on all of a server, or on one. Not if that
//           worker or server is itself a culprit, because a process short of CPU time is also slow
//           to receive
//
// A lone worker or server has nothing to be compared with. In Async nobody waits, so no worker is
// named.
std::vector<Culprit> FindCulprits(std::span<const WorkerPace> paces,
                                  const BusyShares& busy,
                                  const CulpritLimits& limits);

// How much longer each worker's own part of a step takes than the median of the others'.
std::map<WorkerId, double> FindLateness(std::span<const WorkerPace> paces);
// The seconds that a step spends in each server, as the median over the workers.
std::map<ServerId, double> FindServerSeconds(std::span<const WorkerPace> paces);

// Watches a job. Thread-compatible. Bounded: a few reports per worker.
class CulpritWatch {
 public:
  // A mean covers at least this time and this many steps.
  static constexpr Duration kWindow = std::chrono::seconds(8);
  static constexpr uint64_t kStepsMin = 4;
  // A member is named once this many more decisions were for than against it, and until as many
  // more are against it.
  static constexpr int kConfirmations = 3;
  // For a link: the cause may turn out to be its worker or server.
  static constexpr int kLinkConfirmations = 6;
  static constexpr Duration kPeriod = std::chrono::seconds(1);

  void OnWorker(SteadyTime now, WorkerId worker, const StepCosts& costs);
  // A server short of CPU time reports late: the missing time counts as busy.
  void OnServer(SteadyTime now, ServerId server, double busy_seconds);
  // The process has ended.
  void Remove(WorkerId worker) { reports_.erase(worker); }
  void Remove(ServerId server) { busy_reports_.erase(server); }
  // Decides once per kPeriod; to be called at least that often.
  void Update(SteadyTime now);

  // What to log now: a line for each member that is newly named, or no longer named.
  struct News {
    bool has_begun = false;  // else it is over
    std::string text;
  };
  std::vector<News> Take() { return std::exchange(news_, {}); }

  // Sets the culprits, the workers' lateness and the servers' step times in `status`.
  void AddTo(JobStatus& status) const;

 private:
  struct Report {
    SteadyTime at;
    StepCosts costs;
  };
  using Key = std::pair<CulpritKind, std::pair<std::optional<WorkerId>, std::optional<ServerId>>>;
  struct BusyReport {
    SteadyTime at;
    double busy_seconds = 0;
  };
  struct Suspect {
    Culprit culprit;
    int confirmations = 0;  // from 0 to the number required to name it
    bool is_named = false;
  };

  std::vector<WorkerPace> Paces() const;
  BusyShares Busy(SteadyTime now) const;
  static Key KeyOf(const Culprit& culprit);
  void Confirm(const Culprit& culprit);
  void Drop(std::map<Key, Suspect>::iterator& suspect);
  void DropExplained();

  std::map<WorkerId, std::deque<Report>> reports_;  // oldest first, in step order
  std::map<ServerId, std::deque<BusyReport>> busy_reports_;
  SteadyTime decided_at_;
  std::map<Key, Suspect> suspects_;
  std::map<WorkerId, double> lateness_;
  std::map<ServerId, double> server_seconds_;
  std::vector<News> news_;
};

}  // namespace pushpull
