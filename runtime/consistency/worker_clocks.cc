// SPDX-License-Identifier: Apache-2.0
#include "runtime/consistency/worker_clocks.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"

namespace pushpull {
namespace {

bool IsBefore(const WorkerClock& entry, WorkerId worker) {
  return entry.worker < worker;
}

}  // namespace

PushVerdict WorkerClocks::Judge(const MembershipView& membership,
                                Step pushed,
                                WorkerId worker,
                                Incarnation incarnation) const {
  if (membership.IsMember(worker, incarnation, pushed))
    return pushed < At(worker) ? PushVerdict::kAnswered : PushVerdict::kContribute;
  // A push from the previous mode, whose pushes have all been applied. Any other worker must
  // rejoin: the clock may be that of a later process, whose numbers begin above those of this one.
  return membership.StartsAfter(worker, incarnation, pushed) ? PushVerdict::kAnswered
                                                             : PushVerdict::kNotMember;
}

Step WorkerClocks::At(WorkerId worker) const {
  const auto at = absl::c_lower_bound(entries_, worker, IsBefore);
  return at != entries_.end() && at->worker == worker ? at->clock : Step{};
}

void WorkerClocks::Record(const WorkerClock& applied) {
  const auto& [worker, clock] = applied;
  auto at = absl::c_lower_bound(entries_, worker, IsBefore);
  if (at == entries_.end() || at->worker != worker) {
    at = entries_.insert(at, {worker, Step{}});
    lowest_of_view_ = 0;  // a new clock: its member counted with its from_step
  }
  if (clock <= at->clock) return;
  if (at->clock <= lowest_ && clock > lowest_) {
    if (members_at_lowest_ <= 1) lowest_of_view_ = 0;
    if (members_at_lowest_ > 0) --members_at_lowest_;
  }
  at->clock = clock;
}

Step WorkerClocks::Lowest(const View& view) {
  if (lowest_of_view_ == view.number && view.number > 0) return lowest_;
  lowest_ = Step{std::numeric_limits<uint64_t>::max()};
  members_at_lowest_ = 0;
  for (const ViewMember& member : view.members) {
    if (member.end_step) continue;
    const Step clock = std::max(At(member.worker), member.from_step);
    if (clock < lowest_) members_at_lowest_ = 0;
    lowest_ = std::min(lowest_, clock);
    if (clock == lowest_) ++members_at_lowest_;
  }
  lowest_of_view_ = view.number;
  return lowest_;
}

Step WorkerClocks::Highest() const {
  Step highest;
  for (const WorkerClock& entry : entries_) highest = std::max(highest, entry.clock);
  return highest;
}

void WorkerClocks::Restore(std::vector<WorkerClock> entries) {
  entries_ = std::move(entries);
  lowest_of_view_ = 0;
}

}  // namespace pushpull
