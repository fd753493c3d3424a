// SPDX-License-Identifier: Apache-2.0
//
// What the consistency mode decides about a chunk's step: what a push means, what is added and
// when, and when the step is complete. One policy per mode, chosen when a view becomes active:
//
//   Sync     a step completes when every required worker has contributed
//   Backup   the leading chunk completes with the first workers; the others wait only for these
//            (consistency/admission.h)
//   Gated    every chunk holds its contributions until the leading chunk has decided who counts
//            (consistency/gate.h)
//   Async    each push is a step of its own; Bounded also delays reads
//   (consistency/worker_clocks.h)
//
// Policies change nothing: they only read the chunk and the views.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/base/ids.h"
#include "runtime/consistency/admission.h"
#include "runtime/consistency/membership_view.h"
#include "runtime/consistency/sync_step.h"
#include "runtime/membership/control.h"
#include "runtime/server/chunk.h"
#include "runtime/transport/frame.h"

namespace pushpull {

// Thread-confined to its lane.
class StepPolicy {
 public:
  explicit StepPolicy(const StepRules& rules) : rules_(rules) {}
  StepPolicy(const StepPolicy&) = delete;
  StepPolicy& operator=(const StepPolicy&) = delete;
  virtual ~StepPolicy() = default;

  // What a push means for the chunk now; held contributions have been accepted.
  PushVerdict Judge(const Chunk& chunk, const FrameHeader& push) const;
  // A push cannot be accepted yet because the chunk does not know who counts in the step.
  virtual bool LacksAdmission(const Chunk&) const { return false; }

  // A contribution of the worker may be added to the sum as it arrives.
  virtual bool MayAddOnArrival(const Chunk& chunk, WorkerId worker) const = 0;
  // Held contributions may be added now, one after another as far as IsTurn allows.
  virtual bool MayAddHeld(const Chunk&) const { return true; }
  // The worker is next in the order of summation. Deterministic mode adds in worker order.
  virtual bool IsTurn(const Chunk&, WorkerId) const { return true; }
  // The contributions added so far complete the step.
  virtual bool IsComplete(const Chunk& chunk) const = 0;

  // The workers that count in the open step; null: all do, or it is not known yet.
  virtual const Admission* Admitted(const Chunk&) const { return nullptr; }
  // This chunk decides who counts in a step.
  virtual bool Leads(const Chunk&) const { return false; }
  // Contributions are held apart from the sum until it is known who counts. The worker is notified
  // of each one held.
  virtual bool HoldsApart(const Chunk&) const { return false; }
  // One push may count for several workers.
  virtual bool CountsJointly(const Chunk&) const { return false; }
  // It then counts for workers of one group (ViewMember::group) only; 0: it is in none.
  uint64_t GroupOf(WorkerId worker, Incarnation incarnation) const;
  // A complete step waits for its clipping scale.
  virtual bool IsClipped(const Chunk&) const { return false; }
  // Each push is a step; versions count pushes, and clocks count each worker's steps.
  virtual bool AppliesEachPush() const { return false; }
  // Bounded: how many steps a reader may be ahead of the slowest worker.
  virtual std::optional<uint32_t> StalenessLimit() const { return std::nullopt; }
  // Workers may read values in this server's memory: nobody writes to a version's memory before
  // every worker has pushed the step that begins with it, and so has finished reading.
  virtual bool MayShareValues() const { return false; }

 protected:
  const MembershipView& membership() const;
  const StepRules& rules() const { return rules_; }

 private:
  virtual PushVerdict JudgeCounted(const Chunk& chunk, const FrameHeader& push) const = 0;
  virtual bool HasHeld(const Chunk& chunk, const FrameHeader& push) const;

  const StepRules& rules_;
};

// The rules in force on a lane: views, job settings, and the policy that follows from them.
// Thread-confined to its lane.
class StepRules {
 public:
  StepRules() { ChoosePolicy(); }
  StepRules(const StepRules&) = delete;
  StepRules& operator=(const StepRules&) = delete;

  const MembershipView& membership() const { return membership_; }
  const StepPolicy& policy() const { return *policy_; }
  const JobSettings& settings() const { return settings_; }
  uint32_t desired_workers() const { return desired_workers_; }
  uint64_t global_batch() const { return global_batch_; }

  void Configure(const JobSettings& settings);
  // Sets how many workers the job should have.
  void SetDesiredWorkers(uint32_t workers) { desired_workers_ = workers; }
  // Sets the samples of each step that is divided from now on; 0: as many as in the step before.
  void SetGlobalBatch(uint64_t batch) { global_batch_ = batch; }
  bool Propose(const View& view, Step lowest_free) {
    return membership_.Propose(view, lowest_free);
  }

  // Whether contributions to open steps remain valid under the new view.
  enum class Contributions { kKeep, kDrop };
  Contributions Activate(const View& view);

 private:
  void ChoosePolicy();

  MembershipView membership_;
  JobSettings settings_;
  uint32_t desired_workers_ = 1;
  uint64_t global_batch_ = 0;
  std::unique_ptr<const StepPolicy> policy_;
};

}  // namespace pushpull
