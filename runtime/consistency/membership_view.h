// SPDX-License-Identifier: Apache-2.0
//
// The views a server knows: the active one and, while the next one is being agreed on, the proposed
// one. A step completes only when both are satisfied, so that no chunk gets ahead of a joiner
// between its proposal and its activation (docs/protocol.md section 4). Pure.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/functional/function_ref.h"

#include "runtime/base/ids.h"
#include "runtime/consistency/view.h"

namespace pushpull {

// Thread-compatible value.
class MembershipView {
 public:
  // Whether this incarnation of the worker contributes to `step` in either view.
  bool IsMember(WorkerId worker, Incarnation incarnation, Step step) const;

  // Whether this incarnation of the worker contributes, in either view, from a later step on.
  bool StartsAfter(WorkerId worker, Incarnation incarnation, Step step) const;

  // ViewMember::group of this process, in the active view, else in the proposed one; 0: none.
  uint64_t GroupOf(WorkerId worker, Incarnation incarnation) const;

  // Calls `visit` for every worker that `step` must wait for; twice for a worker in both views.
  void ForEachRequired(Step step, absl::FunctionRef<void(WorkerId)> visit) const;

  // With backup workers: whether `asked` contributions complete `step` on the leading chunk of a
  // job with `desired` workers. One of them has samples, unless no member has: those without any
  // push at once, and would leave behind the ones that compute. Servers may differ in `desired` for
  // a moment, which is harmless: only that chunk's primary uses it.
  bool IsQuorum(Step step, uint32_t desired, size_t asked, bool has_samples) const;

  // A proposed mode, not yet active here, begins at `step` or earlier.
  bool IsOfNextMode(Step step) const;

  // Accepts `view` as proposed if every joiner in it, and a mode that changes with it, starts at
  // `lowest_free_step` or later. In synchronous mode joiners may start anywhere if no member of the
  // active view is left (a full restart: nobody can be overtaken). A number not higher than all
  // seen so far is rejected.
  bool Propose(const View& view, Step lowest_free_step);

  // Makes `view` active and drops the proposal if it is not newer. A lower number is ignored.
  // Returns true if the previous view had members and none of them is left: contributions to
  // incomplete steps are then stale, because nobody will complete them.
  bool Activate(const View& view);

  const View& active() const { return active_; }
  const std::optional<View>& proposed() const { return proposed_; }

 private:
  View active_;
  std::optional<View> proposed_;
};

}  // namespace pushpull
