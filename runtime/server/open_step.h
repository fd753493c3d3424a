// SPDX-License-Identifier: Apache-2.0
//
// The step under way on a chunk's primary: who has contributed, the sum so far, and the
// contributions that must not be added yet. What may be added when is decided by the StepPolicy
// (step_policy.h).
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

// A complete contribution. It is held where it must not be added yet: another one is being received
// into the accumulator, (deterministic mode) a worker with a lower index is still to come, or it is
// not decided who counts in the step.
struct ReceivedContribution {
  Contribution contribution;
  HostBuffer values;
  bool counts = true;       // false: counted as a contributor, left out of the sum
  bool skips_step = false;  // with it the chunk keeps its value in this step
  Waiter waiter;
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
  // A contribution of the step, or its sum, keeps the chunk's value as it is (spec.sync.nonFinite).
  bool skips() const { return skips_ || !sum_.is_finite(); }

  // spec.sync.nonFinite: Fail. The chunk takes nothing any more, in no step.
  void Fail() { has_failed_ = true; }
  bool has_failed() const { return has_failed_; }

  // A contribution has arrived. `measures_noise`: the step's noise is measured.
  void NoteArrival(SteadyTime now, bool measures_noise = false);
  // Counts what was received into sum() after BeginDirect.
  void CountDirect(const ReceivedContribution& received);
  // Counts values that lie elsewhere and are read during the call; sum().has_sum() must hold.
  void CountFrom(std::span<const float> values, const ReceivedContribution& received);
  // Counts a held contribution. Its memory may be exchanged for other memory.
  void CountHeld(ReceivedContribution& held);
  // Holds it; replaces one of an earlier process of the worker.
  void Hold(ReceivedContribution received);
  // The one with the lowest worker index; held() must not be empty.
  ReceivedContribution TakeFirstHeld();
  // Removes and returns those for which `matches`.
  std::vector<ReceivedContribution> TakeHeld(
      absl::FunctionRef<bool(const ReceivedContribution&)> matches);
  void DropRequestsOf(const Connection& connection);
  // Removes the waiters of held contributions, which stay.
  std::vector<Waiter> TakeHeldWaiters();

  // Backup workers and gated steps: what the leading chunk has decided, as frames of workers told
  // this one; of the step under way or of a later one. Unused on the leading chunk itself.
  const std::optional<Admission>& decided() const { return decided_; }
  // Takes the decision if it is newer than the one known, and not of a step before `version`.
  void Learn(Admission decided, Step version);
  // The worker pushes no step before `step` any more, so it is not waited for in one.
  void Withdraw(WorkerId worker, Step step);
  void ForgetDecision() { decided_.reset(); }

  // Forgets the step's contributions, not the decision. A payload that is being received into the
  // sum goes on.
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

}  // namespace pushpull
