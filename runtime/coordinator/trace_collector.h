// SPDX-License-Identifier: Apache-2.0
//
// The trace under way: which workers still have to report, and what they have reported, until the
// command that requested it has fetched it. Bounded: all workers together have room for kEventsMax
// pushes and spans. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"

namespace pushpull {

// Thread-compatible.
class TraceCollector {
 public:
  // For all workers together; about 150 bytes each.
  static constexpr uint32_t kEventsMax = 100'000;
  // Workers record this many more steps than were requested: they learn of the trace at different
  // steps, and a reader wants the steps that all have recorded (trace/shared_steps.h).
  static constexpr uint32_t kSpareSteps = 4;
  // How long a trace that nobody fetches is kept.
  static constexpr Duration kKept = std::chrono::seconds(60);

  // The processes that record: a worker's next process has nothing of the trace.
  using Workers = std::map<WorkerId, Incarnation>;

  explicit TraceCollector(Term term) : term_(term) {}

  // Discards the previous trace. Returns what to send to each of `workers`. kInvalidArgument: steps
  // or seconds out of range; kFailedPrecondition: there are no workers.
  absl::StatusOr<TraceSteps> Start(const TraceRequest& request,
                                   const Workers& workers,
                                   SteadyTime now);
  uint64_t number() const { return number_; }

  void OnReport(WorkerId worker, TraceReport report);
  // The reports of other workers are no longer waited for.
  void KeepOnly(const Workers& workers);
  void OnTick(SteadyTime now);

  // As many parts as fit into one answer, from part `from` on; earlier parts are discarded.
  // kNotFound: no such trace, or no longer.
  absl::StatusOr<TraceParts> Take(uint64_t number, uint64_t from);

 private:
  void Clear();

  const Term term_;
  uint64_t last_ = 0;    // how many traces this coordinator has started
  uint64_t number_ = 0;  // of the trace under way; 0: none
  SteadyTime ends_at_;
  struct Share {
    Incarnation incarnation;
    uint32_t room = 0;
  };
  std::map<WorkerId, Share> missing_;  // workers that have not reported everything
  std::deque<TraceReport> parts_;
  uint64_t first_part_ = 0;  // the number of the first in parts_
};

}  // namespace pushpull
