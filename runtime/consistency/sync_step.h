// SPDX-License-Identifier: Apache-2.0
//
// One chunk's step in synchronous mode: which workers have contributed, what an arriving push
// means, and when the step is complete (docs/protocol.md section 3). Pure: no buffers, no time, no
// peers.
//
// clang-format off
//             push of step t == version     every required worker counted
//   version t ------------------------> summing ------------------------> complete -> version t + 1
// clang-format on
#pragma once

#include <span>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/consistency/admission.h"
#include "runtime/consistency/membership_view.h"

namespace pushpull {

enum class PushVerdict {
  kContribute,   // counts: add it
  kDuplicate,    // already counted in this step: answer when it is complete
  kAnswered,     // the step is complete: answer with the current version
  kTooEarly,     // for a step after the chunk's version: the worker's mistake
  kNotMember,    // not in the view of that step: rejoin
  kNotYet,       // of a mode not yet active here: send again
  kNotAdmitted,  // not known to count in the step: the worker's mistake
};

struct Contribution {
  WorkerId worker;
  Incarnation incarnation;
  double weight = 1;         // samples; 0 or more
  double learning_rate = 0;  // 0: the registered one
  Step step = {};            // as numbered by the worker
};

// Thread-compatible.
class SyncStep {
 public:
  PushVerdict Judge(const MembershipView& membership,
                    Step version,
                    Step pushed,
                    WorkerId worker,
                    Incarnation incarnation) const;

  // Counts a contribution that Judge accepted. Each worker counts once, whatever its incarnation.
  void Count(const Contribution& contribution);

  // True if every worker that `step` needs is counted, and at least one is. With `admitted`: if
  // every one of those that is still a member is counted, even if none is left, because the step is
  // decided and other chunks may be past it.
  bool IsComplete(const MembershipView& membership,
                  Step step,
                  const Admission* admitted = nullptr) const;

  // Deterministic mode: true if no worker with a lower index is still to be added, so that the
  // order of the sum is the same in every run.
  bool IsTurnOf(WorkerId worker,
                const MembershipView& membership,
                Step step,
                const Admission* admitted = nullptr) const;

  // In the order of their worker index.
  std::span<const Contribution> contributors() const { return contributors_; }
  bool HasCounted(WorkerId worker) const;

  // From the contributor with the lowest index; 0: the registered one.
  double learning_rate() const {
    return contributors_.empty() ? 0 : contributors_.front().learning_rate;
  }

  void Clear() { contributors_.clear(); }

 private:
  std::vector<Contribution> contributors_;
};

}  // namespace pushpull
