// SPDX-License-Identifier: Apache-2.0
//
// What a server knows of the views: the one in force and, while the coordinator is agreeing on the
// next one, the one proposed. A step completes only when both are satisfied, so that nothing passes
// a joiner between its proposal and its activation (protocol.md section 4). Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

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

  // Calls `visit` for every worker that `step` must wait for; a worker in both views comes twice.
  void ForEachRequired(Step step, const std::function<void(WorkerId)>& visit) const;

  // With backup workers: how many contributions complete `step` on the leading chunk of a job that
  // shall have `wanted` workers. Above 0. Servers may differ in it for a moment, which does no
  // harm: only that chunk's primary asks.
  size_t Quorum(Step step, uint32_t wanted) const;

  // A mode that begins with `step` or before is agreed on and not in force here yet.
  bool IsOfNextMode(Step step) const;

  // Takes `view` as proposed if every joiner in it, and a mode that changes with it, starts at
  // `lowest_free_step` or later. In synchronous mode joiners may start anywhere if no member of the
  // active view is left (a full restart: nobody could be overtaken). A lower number than one
  // already seen is refused.
  bool Propose(const View& view, Step lowest_free_step);

  // Puts `view` in force and drops the proposal if it is not newer. A lower number is ignored.
  // Returns true when members were there before and none of them is left: contributions to
  // incomplete steps are then void, because nobody will complete them.
  bool Activate(const View& view);

  const View& active() const { return active_; }
  const std::optional<View>& proposed() const { return proposed_; }

 private:
  View active_;
  std::optional<View> proposed_;
};

}  // namespace pushpull
