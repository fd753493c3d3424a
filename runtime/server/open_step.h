// SPDX-License-Identifier: Apache-2.0
//
// The open step on a chunk's primary: who has contributed, the sum so far, and the contributions
// that must not be added yet. The StepPolicy (step_policy.h) decides what may be added and when.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"

#include "pushpull/deadline.h"

#include "runtime/consistency/admission.h"
#include "runtime/consistency/sync_step.h"
#include "runtime/server/waiter_queue.h"
#include "runtime/store/buffer_pool.h"
#include "runtime/store/step_accumulator.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

// A complete contribution. It is held while it must not be added yet: another is being received
// into the accumulator, a worker with a lower index has yet to contribute (deterministic mode), or
// it is undecided who counts in the step.
struct ReceivedContribution {
  // Of a joint push: of the worker with the lowest index. Its weight is the unit of the sum.
  Contribution contribution;
  std::vector<Contribution> joined = {};  // the other workers of a joint push
  double more_samples = 0;                // of a joint push: beyond contribution.weight
  HostBuffer values;
  bool has_gradient = true;  // false: zeros, without `values`
  bool counts = true;        // false: counted as a contributor, left out of the sum
  bool skips_step = false;   // the chunk keeps its value in this step
  Waiter waiter;

  SumWeight weight() const { return {contribution.weight, contribution.weight + more_samples}; }
};

// Thread-confined to its lane.
class OpenStep {
 public:
  explicit OpenStep(StepAccumulator sum) : sum_(std::move(sum)) {}

  const SyncStep& counted() const { return counted_; }
  std::span<const ReceivedContribution> held() const { return held_; }  // in worker order
  const StepAccumulator& sum() const { return sum_; }
  StepAccumulator& sum() { return sum_; }

  bool has_begun() const { return !counted_.contributors().empty() || !held_.empty(); }
  SteadyTime began_at() const { return began_at_; }  // the first contribution
  bool HasHeld(WorkerId worker) const;
  // The chunk keeps its value, because of a contribution or the sum (spec.sync.nonFinite).
  bool skips() const { return skips_ || !sum_.is_finite(); }

  // spec.sync.nonFinite: Fail. The chunk accepts nothing more, in any step.
  void Fail() { has_failed_ = true; }
  bool has_failed() const { return has_failed_; }

  // A contribution has arrived. `measures_noise`: also measures the step's noise.
  void NoteArrival(SteadyTime now, bool measures_noise = false);
  // Counts the contribution that was received into sum() after BeginDirect.
  void CountDirect(const ReceivedContribution& received);
  // Counts values that lie elsewhere; they are read during the call. sum().has_sum() must hold.
  void CountFrom(std::span<const float> values, const ReceivedContribution& received);
  // Counts a held contribution. May exchange its memory for other memory.
  void CountHeld(ReceivedContribution& held);
  // Holds the contribution; replaces one from an earlier process of the worker.
  void Hold(ReceivedContribution received);
  // The one with the lowest worker index; held() must not be empty.
  ReceivedContribution TakeFirstHeld();
  // Removes and returns those for which `matches`.
  std::vector<ReceivedContribution> TakeHeld(
      absl::FunctionRef<bool(const ReceivedContribution&)> matches);
  void DropRequestsOf(const Connection& connection);
  // Removes the waiters of held contributions, which stay.
  std::vector<Waiter> TakeHeldWaiters();

  // Backup workers and gated steps: the leading chunk's decision, as learned from workers' frames,
  // for the open step or a later one. Unused on the leading chunk itself.
  const std::optional<Admission>& decided() const { return decided_; }
  // Takes the decision if it is newer than the known one, and not for a step before `version`.
  void Learn(Admission decided, Step version);
  // The worker will push no step before `step`, so none of them waits for it.
  void Withdraw(WorkerId worker, Step step);
  void ForgetDecision() { decided_.reset(); }

  // Forgets the step's contributions, but not the decision. A payload that is being received into
  // the sum is unaffected.
  void Clear();

 private:
  void Count(const ReceivedContribution& received);

  SyncStep counted_;
  StepAccumulator sum_;
  std::vector<ReceivedContribution> held_;
  std::optional<Admission> decided_;
  bool skips_ = false;
  bool has_failed_ = false;
  SteadyTime began_at_;
};

// Somebody's gradient counts, or would if it were finite. In a mean, one without samples does not.
inline bool HasGradient(const OpenStep& step) {
  return step.skips() || step.sum().has_sum();
}

}  // namespace pushpull
