// SPDX-License-Identifier: Apache-2.0
//
// What a single status does not show: how a job's speed changed and what has happened to it,
// derived from consecutive statuses. For the status page, `pushpull status --watch` and the report.
// Pure.
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
  // Means over the synchronizations that all workers reported in the interval.
  double sync_seconds = 0;
  std::array<double, kSyncPhaseCount> phase_seconds{};
  // Over the last kRateSeconds.
  double samples_per_second = 0;
  double pushed_per_second = 0;  // bytes, as below
  double pulled_per_second = 0;
  double replicated_per_second = 0;
  std::optional<double> loss;  // the newest loss
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

// What has changed between two statuses of one job, for people to read. `before` may be from an
// earlier coordinator.
std::vector<HistoryEvent> EventsBetween(const JobStatus& before, const JobStatus& now);

// Thread-compatible.
class StatusHistory {
 public:
  // With more than kPointsMax points: kNewest drops the oldest, kAll merges each two, so that the
  // rest spans the whole job at half the resolution.
  enum class Keeps : uint8_t { kNewest, kAll };

  static constexpr size_t kPointsMax = 600;
  static constexpr size_t kEventsMax = 200;  // the newest are kept
  // Members report once a second: shorter intervals would show when they report, not what they did.
  // With kAll intervals are shorter, because a whole job may be short.
  static constexpr double kPeriodSeconds = 2;
  static constexpr double kPeriodOfAllSeconds = 1;
  static constexpr double kRateSeconds = 6;

  explicit StatusHistory(Keeps keeps)
      : keeps_(keeps), period_(keeps == Keeps::kAll ? kPeriodOfAllSeconds : kPeriodSeconds) {}

  // Adds the newest status, at `time`, which never decreases. The status is kept until the next
  // one.
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
