// SPDX-License-Identifier: Apache-2.0
//
// Finds who holds a job's steps up: a worker, a server or a link that is slow compared with the
// others, if that costs something. The workers report where the time of their steps went
// (worker/link_meter.h); here the last seconds of all of them are compared. Pure.
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

// Means of one worker's steps; seconds and bytes of one step.
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

// Share of the time that a server's lanes have work, also while the scheduler keeps them from it.
using BusyShares = std::map<ServerId, double>;

// Who is named: costs at least `share` of a step, and is at least so many times as slow.
struct CulpritLimits {
  double share = 0.15;
  double worker_ratio = 1.25;
  double server_ratio = 2;  // of the time of a step's gradients in a server
  double link_ratio = 2;    // of the seconds that a byte takes
};

// The members that are slow compared with the median of the others, the most expensive first:
//
//   worker  its own part of a step is longer, and others wait for it
//   server  gradients are in it for longer; or gradients and values are on their way for longer on
//           all of its links while its lanes are busier: they have too little processor time
//   link    bytes are on their way for longer: on all links of a worker, on all of a server, or on
//           one. Not where that worker or server is named itself, because what has too little
//           processor time is slow in receiving, too
//
// A lone worker or server is compared with nobody. Nobody waits in Async, so no worker is named.
std::vector<Culprit> FindCulprits(std::span<const WorkerPace> paces,
                                  const BusyShares& busy,
                                  const CulpritLimits& limits);

// By how much longer each worker's own part of a step is than the median of the others'.
std::map<WorkerId, double> FindLateness(std::span<const WorkerPace> paces);
// The median, over the workers, of a step's seconds in each server.
std::map<ServerId, double> FindServerSeconds(std::span<const WorkerPace> paces);

// Follows a job. Thread-compatible. Bounded: a few reports of each worker.
class CulpritWatch {
 public:
  // What a mean is taken of: at least so long, and so many steps.
  static constexpr Duration kWindow = std::chrono::seconds(8);
  static constexpr uint64_t kStepsMin = 4;
  // A member is named when so many more decisions were for than against it, and until as many more
  // are against it.
  static constexpr int kConfirmations = 3;
  // Of a link: what makes it slow may turn out to be its worker or server.
  static constexpr int kLinkConfirmations = 6;
  static constexpr Duration kPeriod = std::chrono::seconds(1);

  void OnWorker(SteadyTime now, WorkerId worker, const StepCosts& costs);
  // A server that has too little processor time reports late: what is missing counts as busy.
  void OnServer(SteadyTime now, ServerId server, double busy_seconds);
  // The process has ended.
  void Remove(WorkerId worker) { reports_.erase(worker); }
  void Remove(ServerId server) { busy_reports_.erase(server); }
  // Decides, once each kPeriod; to be called at least as often.
  void Update(SteadyTime now);

  // What to log now: a line for each member that is named, and that is named no more.
  struct News {
    bool has_begun = false;  // else it is over
    std::string text;
  };
  std::vector<News> Take() { return std::exchange(news_, {}); }

  // Sets culprits, lateness of workers and step times of servers in `status`.
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
    int confirmations = 0;  // 0 to the number that names it
    bool is_named = false;
  };

  std::vector<WorkerPace> Paces() const;
  BusyShares Busy(SteadyTime now) const;
  static Key KeyOf(const Culprit& culprit);
  void Confirm(const Culprit& culprit);
  void Drop(std::map<Key, Suspect>::iterator& suspect);
  void DropExplained();

  std::map<WorkerId, std::deque<Report>> reports_;  // the oldest first; steps rise
  std::map<ServerId, std::deque<BusyReport>> busy_reports_;
  SteadyTime decided_at_;
  std::map<Key, Suspect> suspects_;
  std::map<WorkerId, double> lateness_;
  std::map<ServerId, double> server_seconds_;
  std::vector<News> news_;
};

}  // namespace pushpull
