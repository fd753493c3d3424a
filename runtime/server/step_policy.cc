// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/step_policy.h"

#include <vector>

#include "absl/algorithm/container.h"

#include "runtime/consistency/gate.h"
#include "runtime/consistency/worker_group.h"

namespace pushpull {

PushVerdict StepPolicy::Judge(const Chunk& chunk, const FrameHeader& push) const {
  if (membership().IsOfNextMode(push.step)) return PushVerdict::kNotYet;
  const PushVerdict verdict = JudgeCounted(chunk, push);
  if (verdict != PushVerdict::kContribute) return verdict;
  if (HasHeld(chunk, push)) return PushVerdict::kDuplicate;
  const Admission* admitted = Admitted(chunk);
  return admitted == nullptr || admitted->Has(push.worker) ? verdict : PushVerdict::kNotAdmitted;
}

bool StepPolicy::HasHeld(const Chunk& chunk, const FrameHeader& push) const {
  return chunk.step().HasHeld(push.worker);
}

uint64_t StepPolicy::GroupOf(WorkerId worker, Incarnation incarnation) const {
  return membership().GroupOf(worker, incarnation);
}

const MembershipView& StepPolicy::membership() const {
  return rules_.membership();
}

namespace {

class SyncPolicy : public StepPolicy {
 public:
  using StepPolicy::StepPolicy;

  bool MayAddOnArrival(const Chunk& chunk, WorkerId worker) const override {
    return IsTurn(chunk, worker);
  }
  bool IsTurn(const Chunk& chunk, WorkerId worker) const override {
    return !rules().settings().deterministic ||
           chunk.step().counted().IsTurnOf(
               worker, membership(), chunk.state().version(), Admitted(chunk));
  }
  bool IsComplete(const Chunk& chunk) const override {
    return chunk.step().counted().IsComplete(
        membership(), chunk.state().version(), Admitted(chunk));
  }
  bool CountsJointly(const Chunk& chunk) const override {
    // The noise is measured between the workers' own gradients.
    return IsSummedInGroups(chunk.tensor().spec) && !rules().settings().noise_scale;
  }
  bool IsClipped(const Chunk& chunk) const override { return chunk.tensor().spec.clip_norm > 0; }
  bool MayShareValues() const override { return true; }

 private:
  PushVerdict JudgeCounted(const Chunk& chunk, const FrameHeader& push) const override {
    return chunk.step().counted().Judge(
        membership(), chunk.state().version(), push.step, push.worker, push.incarnation);
  }
};

// The leading chunk decides who counts in a step.
class LedPolicy : public SyncPolicy {
 public:
  using SyncPolicy::SyncPolicy;

  const Admission* Admitted(const Chunk& chunk) const override {
    const std::optional<Admission>& decided = chunk.step().decided();
    const bool is_known =
        !chunk.is_leading() && decided && decided->step == chunk.state().version();
    return is_known ? &*decided : nullptr;
  }
  bool Leads(const Chunk& chunk) const override { return chunk.is_leading(); }
  bool IsTurn(const Chunk& chunk, WorkerId worker) const override {
    if (chunk.is_leading() || !rules().settings().deterministic) return true;
    // The order of adding is unknown until it is known who counts.
    return Admitted(chunk) != nullptr && SyncPolicy::IsTurn(chunk, worker);
  }
  bool MayAddHeld(const Chunk& chunk) const override {
    return chunk.is_leading() ? HasQuorum(chunk) : MayAddDecided(chunk);
  }
  bool IsComplete(const Chunk& chunk) const override {
    if (chunk.is_leading())
      return !chunk.step().counted().contributors().empty() && HasQuorum(chunk);
    return Admitted(chunk) != nullptr && SyncPolicy::IsComplete(chunk);
  }
  bool CountsJointly(const Chunk&) const override { return false; }
  // The coordinator refuses it (coordinator/clip_rules.h).
  bool IsClipped(const Chunk&) const override { return false; }
  // A worker that was left out may still be reading the previous version.
  bool MayShareValues() const override { return false; }

 private:
  // The leading chunk has enough to decide the step.
  virtual bool HasQuorum(const Chunk& leading) const = 0;
  virtual bool MayAddDecided(const Chunk& chunk) const = 0;
};

class BackupPolicy final : public LedPolicy {
 public:
  using LedPolicy::LedPolicy;

  bool LacksAdmission(const Chunk& chunk) const override {
    return !chunk.is_leading() && Admitted(chunk) == nullptr;
  }
  bool MayAddOnArrival(const Chunk& chunk, WorkerId worker) const override {
    return !chunk.is_leading() && IsTurn(chunk, worker);
  }

 private:
  bool HasQuorum(const Chunk& leading) const override {
    size_t asked = 0;
    bool has_samples = false;
    const auto count = [&](const Contribution& contribution) {
      ++asked;
      has_samples = has_samples || contribution.weight > 0;
    };
    for (const Contribution& contribution : leading.step().counted().contributors())
      count(contribution);
    for (const ReceivedContribution& held : leading.step().held()) count(held.contribution);
    return membership().IsQuorum(
        leading.state().version(), rules().desired_workers(), asked, has_samples);
  }
  bool MayAddDecided(const Chunk&) const override { return true; }
};

class GatedPolicy final : public LedPolicy {
 public:
  using LedPolicy::LedPolicy;

  bool MayAddOnArrival(const Chunk&, WorkerId) const override { return false; }
  bool HoldsApart(const Chunk& chunk) const override { return !chunk.is_leading(); }

 private:
  bool HasQuorum(const Chunk& leading) const override {
    std::vector<WorkerId> asked;
    for (const Contribution& contribution : leading.step().counted().contributors())
      asked.push_back(contribution.worker);
    for (const ReceivedContribution& held : leading.step().held())
      asked.push_back(held.contribution.worker);
    absl::c_sort(asked);
    return MayDecide(membership(), leading.state().version(), asked);
  }

  // Nothing is added before everything is here: held contributions survive this server's demotion
  // and next promotion, a sum does not.
  bool MayAddDecided(const Chunk& chunk) const override {
    const Admission* decided = Admitted(chunk);
    if (decided == nullptr || !chunk.shard().member().is_open()) return false;
    bool is_complete = true;
    membership().ForEachRequired(chunk.state().version(), [&](WorkerId worker) {
      is_complete = is_complete && (!decided->Has(worker) || chunk.step().HasHeld(worker));
    });
    return is_complete;
  }

  // Contributions of dead workers are kept. If all workers are gone and the job resumes with the
  // same step, a worker's next process replaces its predecessor's contribution.
  bool HasHeld(const Chunk& chunk, const FrameHeader& push) const override {
    return absl::c_any_of(chunk.step().held(), [&](const auto& h) {
      return h.contribution.worker == push.worker && h.contribution.incarnation == push.incarnation;
    });
  }
};

class AsyncPolicy final : public StepPolicy {
 public:
  AsyncPolicy(const StepRules& rules, std::optional<uint32_t> staleness_limit)
      : StepPolicy(rules), staleness_limit_(staleness_limit) {}

  bool MayAddOnArrival(const Chunk&, WorkerId) const override { return false; }
  bool IsComplete(const Chunk& chunk) const override {
    return !chunk.step().counted().contributors().empty();
  }
  bool AppliesEachPush() const override { return true; }
  std::optional<uint32_t> StalenessLimit() const override { return staleness_limit_; }

 private:
  PushVerdict JudgeCounted(const Chunk& chunk, const FrameHeader& push) const override {
    return chunk.clocks().Judge(membership(), push.step, push.worker, push.incarnation);
  }

  const std::optional<uint32_t> staleness_limit_;
};

}  // namespace

void StepRules::Configure(const JobSettings& settings) {
  settings_ = settings;
  desired_workers_ = settings.workers;
}

StepRules::Contributions StepRules::Activate(const View& view) {
  const bool was_gated = membership_.active().consistency.gated;
  const bool all_gone = membership_.Activate(view);
  ChoosePolicy();
  const bool is_gated = membership_.active().consistency.gated;
  // Between two modes no push of a live worker is pending. If all workers are gone, nobody
  // completes what they began; but a gated step may have been decided before they died.
  const bool is_stale = was_gated != is_gated || (all_gone && !is_gated);
  return is_stale ? Contributions::kDrop : Contributions::kKeep;
}

void StepRules::ChoosePolicy() {
  const Consistency& consistency = membership_.active().consistency;
  if (consistency.mode == SyncMode::kBounded) {
    policy_ = std::make_unique<AsyncPolicy>(*this, consistency.staleness);
  } else if (consistency.mode == SyncMode::kAsync) {
    policy_ = std::make_unique<AsyncPolicy>(*this, std::nullopt);
  } else if (consistency.gated) {
    policy_ = std::make_unique<GatedPolicy>(*this);
  } else if (consistency.admits()) {
    policy_ = std::make_unique<BackupPolicy>(*this);
  } else {
    policy_ = std::make_unique<SyncPolicy>(*this);
  }
}

}  // namespace pushpull
