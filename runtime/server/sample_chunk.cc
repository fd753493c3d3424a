// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/sample_chunk.h"

#include <span>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/consistency/sample_queue.h"
#include "runtime/server/step_policy.h"

namespace pushpull {
namespace {

std::vector<WorkerId> MembersAt(const MembershipView& membership, Step step) {
  std::vector<WorkerId> members;
  membership.ForEachRequired(step, [&](WorkerId worker) { members.push_back(worker); });
  return members;
}

// In the view, or joins it, and has not announced its last step.
bool IsPresent(const MembershipView& membership, WorkerId worker) {
  const auto stays_in = [&](const View& view) {
    const ViewMember* member = view.Find(worker);
    return member != nullptr && !member->end_step;
  };
  return stays_in(membership.active()) ||
         (membership.proposed() && stays_in(*membership.proposed()));
}

absl::StatusOr<HostBuffer> BufferOf(const std::vector<std::byte>& bytes) {
  PUSHPULL_ASSIGN_OR_RETURN(HostBuffer value, HostBuffer::Uninitialized(SampleQueue::kBytes));
  absl::c_copy(bytes, value.bytes().begin());
  return value;
}

// ---- modes without common steps ----

absl::StatusOr<SampleLeases> LeasesIn(std::span<const std::byte> bytes, double num_samples) {
  if (SampleLeases::AreIn(bytes)) return SampleLeases::Decode(bytes);
  PUSHPULL_ASSIGN_OR_RETURN(SampleQueue queue, SampleQueue::Decode(bytes));
  queue.SetNumSamples(num_samples);
  return SampleLeases(queue);
}

// After the only contribution of the chunk's step.
absl::StatusOr<std::vector<std::byte>> NextLeases(const Chunk& chunk, const StepRules& rules) {
  const Contribution& push = chunk.step().counted().contributors().front();
  PUSHPULL_ASSIGN_OR_RETURN(SampleLeases leases,
                            LeasesIn(chunk.state().value()->bytes(), push.learning_rate));
  if (rules.global_batch() > 0) leases.SetGlobalBatch(rules.global_batch());
  leases.Retain([&](WorkerId worker) { return IsPresent(rules.membership(), worker); });
  // A worker that has left may have pushed before: its batch is back.
  if (IsPresent(rules.membership(), push.worker)) {
    leases.Commit(
        push.worker,
        ReportOf(push.weight),
        {.num_samples = push.learning_rate, .version = Step{chunk.state().version().value() + 1}});
  }
  return leases.Encode();
}

// ---- modes with common steps ----

struct StepEnd {
  std::vector<WorkerId> counted;
  std::vector<WorkerId> next;  // the members of the next step
  double num_samples;
};

StepEnd EndOf(const Chunk& chunk, const StepRules& rules) {
  StepEnd end{.counted = {},
              .next = MembersAt(rules.membership(), Step{chunk.state().version().value() + 1}),
              .num_samples = chunk.step().counted().learning_rate()};
  for (const Contribution& contribution : chunk.step().counted().contributors()) {
    const SampleReport report = ReportOf(contribution.weight);
    if (AreDone(report)) end.counted.push_back(contribution.worker);
    if (!WantsMore(report)) std::erase(end.next, contribution.worker);
  }
  return end;
}

absl::StatusOr<SampleQueue> QueueAfter(const StepEnd& end, const Chunk& chunk) {
  const std::span<const std::byte> bytes = chunk.state().value()->bytes();
  if (SampleLeases::AreIn(bytes)) {
    PUSHPULL_ASSIGN_OR_RETURN(const SampleLeases leases, SampleLeases::Decode(bytes));
    SampleQueue queue = leases.ToQueue(end.counted, Step{chunk.state().version().value() + 1});
    queue.SetNumSamples(end.num_samples);
    queue.SetMembers(end.next);
    return queue;
  }
  PUSHPULL_ASSIGN_OR_RETURN(SampleQueue queue, SampleQueue::Decode(bytes));
  queue.SetNumSamples(end.num_samples);
  queue.Advance(end.counted, end.next);
  return queue;
}

}  // namespace

bool HoldsSamples(const Chunk& chunk) {
  return chunk.tensor().spec.name == kSampleQueueTensor;
}

uint64_t BatchOf(const Chunk& chunk) {
  if (!HoldsSamples(chunk) || !chunk.state().is_initialized()) return 0;
  const std::span<const std::byte> bytes = chunk.state().value()->bytes();
  if (SampleLeases::AreIn(bytes)) {
    const absl::StatusOr<SampleLeases> leases = SampleLeases::Decode(bytes);
    return leases.ok() ? leases->batch() : 0;
  }
  const absl::StatusOr<SampleQueue> queue = SampleQueue::Decode(bytes);
  return queue.ok() ? queue->batch() : 0;
}

absl::Status DivideFirstStep(const Chunk& chunk, const StepRules& rules, HostBuffer& value) {
  absl::StatusOr<SampleQueue> queue = SampleQueue::Decode(value.bytes());
  if (!queue.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(chunk.Name(), " of a worker: ", queue.status().message()));
  }
  std::vector<WorkerId> members = MembersAt(rules.membership(), chunk.state().version());
  if (rules.policy().AppliesEachPush()) {
    SampleLeases leases(*queue);
    leases.Admit(members);
    absl::c_copy(leases.Encode(), value.bytes().begin());
  } else {
    queue->SetMembers(std::move(members));
    absl::c_copy(queue->Encode(), value.bytes().begin());
  }
  return absl::OkStatus();
}

absl::StatusOr<HostBuffer> DivideNextStep(const Chunk& chunk, const StepRules& rules) {
  if (rules.policy().AppliesEachPush()) {
    PUSHPULL_ASSIGN_OR_RETURN(const std::vector<std::byte> leases, NextLeases(chunk, rules));
    return BufferOf(leases);
  }
  const StepEnd end = EndOf(chunk, rules);
  PUSHPULL_ASSIGN_OR_RETURN(SampleQueue queue, QueueAfter(end, chunk));
  if (rules.membership().active().consistency.admits()) queue.PreferInSmallStep(end.counted);
  // The value records how many samples its step has, so all workers use the same number, and a
  // change falls between two steps.
  if (rules.global_batch() > 0) queue.SetGlobalBatch(rules.global_batch());
  return BufferOf(queue.Encode());
}

absl::StatusOr<std::optional<HostBuffer>> WithoutGone(const Chunk& chunk, const StepRules& rules) {
  std::optional<SampleLeases> leases = LeasesOf(chunk, rules);
  const auto is_present = [&](WorkerId worker) { return IsPresent(rules.membership(), worker); };
  if (!leases || !leases->Retain(is_present)) return std::nullopt;
  return BufferOf(leases->Encode());
}

std::optional<SampleLeases> LeasesOf(const Chunk& chunk, const StepRules& rules) {
  if (!rules.policy().AppliesEachPush() || !HoldsSamples(chunk) || !chunk.state().is_initialized())
    return std::nullopt;
  absl::StatusOr<SampleLeases> leases = SampleLeases::Decode(chunk.state().value()->bytes());
  return leases.ok() ? std::optional(*std::move(leases)) : std::nullopt;
}

bool AwaitsSamples(const SampleLeases& leases,
                   const Chunk& chunk,
                   const StepRules& rules,
                   const Waiter& push) {
  const FrameHeader& request = push.request;
  if (!IsPush(request.type) || request.weight >= kAnswerAtOnce ||
      !leases.IsWaiting(request.worker, request.base_version))
    return false;
  const std::optional<uint32_t> staleness = rules.policy().StalenessLimit();
  const Step next_of_others{chunk.clocks().Highest().value() + 1};
  return !staleness || !IsTooEarlyToRead(push.clock, *staleness, next_of_others);
}

}  // namespace pushpull
