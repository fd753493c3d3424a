// SPDX-License-Identifier: Apache-2.0
//
// What a status alone does not show: how a job's speed changed, and what has happened to it, from
// the statuses that follow each other. For the status page, `pushpull status --watch` and the
// report. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/membership/job_status.h"
#include "runtime/metrics/sync_phase.h"

namespace pushpull {

// What the job did in one interval.
struct HistoryPoint {
  double time = 0;  // its end, in seconds since 1970
  Step step;        // finished by then
  uint64_t syncs = 0;
  // Means over the synchronizations of all workers that were reported in it.
  double sync_seconds = 0;
  std::array<double, kSyncPhaseCount> phase_seconds{};
  // Over the last kRateSeconds.
  double samples_per_second = 0;
  double pushed_per_second = 0;  // bytes, and below
  double pulled_per_second = 0;
  double replicated_per_second = 0;
  std::optional<double> loss;  // the newest
};

struct HistoryEvent {
  enum class Kind : uint8_t { kInfo, kChange, kFailure };
  double time = 0;  // when it was noticed, in seconds since 1970
  Step step;        // of the job at that time
  Kind kind = Kind::kInfo;
  std::string text;  // one line
  friend bool operator==(const HistoryEvent&, const HistoryEvent&) = default;
};
// "info", "change", "failure".
std::string NameOf(HistoryEvent::Kind kind);

// What has changed between two statuses of one job, for people. `before` may be of an earlier
// coordinator.
std::vector<HistoryEvent> EventsBetween(const JobStatus& before, const JobStatus& now);

// Thread-compatible.
class StatusHistory {
 public:
  // What goes when there are more than kPointsMax points: the oldest, or every other one, so that
  // the rest spans the whole job with half the resolution.
  enum class Keeps : uint8_t { kNewest, kAll };

  static constexpr size_t kPointsMax = 600;
  static constexpr size_t kEventsMax = 200;  // the newest are kept
  // Members report once a second: shorter intervals would show when they do, not what they did.
  // A whole job may be a short one.
  static constexpr double kPeriodSeconds = 2;
  static constexpr double kPeriodOfAllSeconds = 1;
  static constexpr double kRateSeconds = 6;

  explicit StatusHistory(Keeps keeps)
      : keeps_(keeps), period_(keeps == Keeps::kAll ? kPeriodOfAllSeconds : kPeriodSeconds) {}

  // The newest status, at `time`, which does not go back. The status is kept until the next one.
  void Add(double time, std::shared_ptr<const JobStatus> status);

  const std::shared_ptr<const JobStatus>& status() const { return newest_; }  // null: none yet
  double time() const { return time_; }                                       // of that status
  const std::deque<HistoryPoint>& points() const { return points_; }
  const std::deque<HistoryEvent>& events() const { return events_; }

 private:
  struct Counted {
    double time = 0;
    std::shared_ptr<const JobStatus> status;
  };

  void AddPoint(double time);
  void Halve();

  Keeps keeps_;
  double period_;
  double time_ = 0;
  std::shared_ptr<const JobStatus> newest_;
  std::deque<Counted> counted_;  // at the ends of the last intervals, kRateSeconds of them
  std::deque<HistoryPoint> points_;
  std::deque<HistoryEvent> events_;
};

}  // namespace pushpull
