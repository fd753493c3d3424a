// SPDX-License-Identifier: Apache-2.0
//
// In which step a program pushes what only it has, such as the state of an optimizer that it runs,
// so that a checkpoint contains it (docs/decisions/0096-state-of-programs.md).
#pragma once

#include <optional>

#include "runtime/base/ids.h"
#include "runtime/base/mutex.h"
#include "runtime/consistency/view.h"

namespace pushpull {

// Thread-safe.
class StateSaves {
 public:
  // Checkpoints wait for TakeSave from now on.
  void Use() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    is_used_ = true;
  }

  // ---- called by the program ----

  bool has_joined_others() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return has_joined_others_;
  }

  // Whether it pushes its state in `step`; it does in its last one, without being asked. Ends the
  // decision for the steps up to this one: an order for one of them comes too late.
  bool TakeSave(Step step, bool is_last) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    const bool is_pushed = is_last || ordered_ == step;
    if (!first_) first_ = step;
    if (is_pushed) pushed_ = step;
    decided_ = Step{step.value() + 1};
    return is_pushed;
  }

  Consistency consistency() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return consistency_;
  }
  // Whether the worker may leave after the last step that was decided: it has pushed its state, for
  // a worker that joins when nobody else has it.
  bool MayLeave() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return !is_used_ || !first_ || (pushed_ && Step{pushed_->value() + 1} == decided_);
  }

  // ---- called by the worker's executor ----

  // Others have made steps before this worker's first one.
  void SetJoinedOthers() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    has_joined_others_ = true;
  }
  // A checkpoint needs the state in the step `last`; none does.
  void Order(std::optional<Step> last) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    ordered_ = last;
  }
  void SetConsistency(const Consistency& consistency) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    consistency_ = consistency;
  }
  // Whether the checkpoint has this program's state, or does not need it, because its first step
  // comes later. Empty: the program has not come to the step.
  std::optional<bool> Verdict() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (!is_used_) return true;
    if (!ordered_ || *ordered_ >= decided_) return std::nullopt;
    return pushed_ == ordered_ || (first_ && *first_ > *ordered_);
  }

 private:
  mutable Mutex mu_;
  Consistency consistency_ ABSL_GUARDED_BY(mu_);
  bool is_used_ ABSL_GUARDED_BY(mu_) = false;
  bool has_joined_others_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Step> first_ ABSL_GUARDED_BY(mu_);    // that the program decided
  std::optional<Step> pushed_ ABSL_GUARDED_BY(mu_);   // the last in which it pushed its state
  std::optional<Step> ordered_ ABSL_GUARDED_BY(mu_);  // by the capture under way
  Step decided_ ABSL_GUARDED_BY(mu_);                 // the first that is not
};

}  // namespace pushpull
