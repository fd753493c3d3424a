// SPDX-License-Identifier: Apache-2.0
//
// One chunk's step in synchronous mode: who has contributed, what a push that arrives means, and
// when the step is complete (docs/protocol.md section 3). Pure: no buffers, no time, no peers.
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
  kDuplicate,    // this step has it already: answer when the step is complete
  kAnswered,     // the step is complete: answer with the current version
  kTooEarly,     // for a step after the chunk's version: the worker's mistake
  kNotMember,    // not in the view of that step: rejoin
  kNotYet,       // of a mode that is not active here yet: send again
  kNotAdmitted,  // the worker does not count in the step, or that is not known: its mistake
};

struct Contribution {
  WorkerId worker;
  Incarnation incarnation;
  double weight = 1;         // samples; 0 or more
  double learning_rate = 0;  // 0: the registered one
  Step step = {};            // the worker's number of it
};

// Thread-compatible.
class SyncStep {
 public:
  PushVerdict Judge(const MembershipView& membership,
                    Step version,
                    Step pushed,
                    WorkerId worker,
                    Incarnation incarnation) const;

  // Counts a contribution that Judge accepted. Each worker once, whatever its incarnation.
  void Count(const Contribution& contribution);

  // True when every worker that `step` needs is counted, and at least one is. With `admitted`:
  // when every one of these that is still a member is counted, even if none is left, because the
  // step is decided and other chunks may be past it.
  bool IsComplete(const MembershipView& membership,
                  Step step,
                  const Admission* admitted = nullptr) const;

  // Deterministic mode: true when no worker with a lower index is still to be added, so that the
  // order of the sum is the same in every run.
  bool IsTurnOf(WorkerId worker,
                const MembershipView& membership,
                Step step,
                const Admission* admitted = nullptr) const;

  // In the order of their worker index.
  std::span<const Contribution> contributors() const { return contributors_; }
  bool HasCounted(WorkerId worker) const;

  // Of the contributor with the lowest index; 0 for the registered one.
  double learning_rate() const {
    return contributors_.empty() ? 0 : contributors_.front().learning_rate;
  }

  void Clear() { contributors_.clear(); }

 private:
  std::vector<Contribution> contributors_;
};

}  // namespace pushpull
