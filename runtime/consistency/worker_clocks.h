// SPDX-License-Identifier: Apache-2.0
//
// One chunk in modes Async and Bounded: how far each worker has come with it, what an arriving push
// means, and which reads may be answered (docs/protocol.md section 7). A worker numbers its steps;
// its clock on a chunk is the number after the last one applied. Pure: no buffers, no time, no
// peers.
//
//   push of step t, t >= clock of its worker  -> applied at once, clock = t + 1
//   push of step t, t < clock                 -> was applied: answered
//   read at clock c, staleness s              -> answered when every member's clock is >= c - s
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/consistency/membership_view.h"
#include "runtime/consistency/sync_step.h"

namespace pushpull {

struct WorkerClock {
  WorkerId worker;
  Step clock;  // the number after that of the last step applied
  friend bool operator==(const WorkerClock&, const WorkerClock&) = default;
};

// Grows with the number of worker indices that have ever pushed, not with steps. Thread-compatible.
class WorkerClocks {
 public:
  // kContribute: apply it, then Record it. kAnswered: it has already been applied.
  PushVerdict Judge(const MembershipView& membership,
                    Step pushed,
                    WorkerId worker,
                    Incarnation incarnation) const;

  // A step has been applied. A clock below the known one is ignored.
  void Record(const WorkerClock& applied);

  // The lowest clock of the view's members; the highest possible value if it has none. A member
  // that has not pushed yet counts with its from_step; one that leaves does not count. Visits all
  // members only if the last one at the lowest clock has advanced, or the view has changed.
  Step Lowest(const View& view);
  // The highest clock of all; 0 if nothing was pushed.
  Step Highest() const;

  // In the order of their worker index.
  std::span<const WorkerClock> entries() const { return entries_; }
  void Restore(std::vector<WorkerClock> entries);
  void Clear() { Restore({}); }

 private:
  Step At(WorkerId worker) const;

  std::vector<WorkerClock> entries_;
  // The last result of Lowest, and how many members had that clock.
  uint64_t lowest_of_view_ = 0;  // the view's number; 0: unknown
  Step lowest_;
  size_t members_at_lowest_ = 0;
};

// Whether a read at a worker's own clock must wait for others.
inline bool IsTooEarlyToRead(Step lowest_clock, uint32_t staleness, Step own_clock) {
  return own_clock.value() > staleness && lowest_clock.value() < own_clock.value() - staleness;
}

}  // namespace pushpull
