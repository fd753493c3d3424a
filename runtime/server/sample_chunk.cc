// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/sample_chunk.h"

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

}  // namespace

bool HoldsSamples(const Chunk& chunk) {
  return chunk.tensor().spec.name == kSampleQueueTensor;
}

uint64_t BatchOf(const Chunk& chunk) {
  if (!HoldsSamples(chunk) || !chunk.state().is_initialized()) return 0;
  const absl::StatusOr<SampleQueue> queue = SampleQueue::Decode(chunk.state().value()->bytes());
  return queue.ok() ? queue->batch() : 0;
}

absl::Status DivideFirstStep(const Chunk& chunk,
                             const MembershipView& membership,
                             HostBuffer& value) {
  absl::StatusOr<SampleQueue> queue = SampleQueue::Decode(value.bytes());
  if (!queue.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(chunk.Name(), " of a worker: ", queue.status().message()));
  }
  queue->SetMembers(MembersAt(membership, chunk.state().version()));
  const std::vector<std::byte> bytes = queue->Encode();
  absl::c_copy(bytes, value.bytes().begin());
  return absl::OkStatus();
}

absl::StatusOr<HostBuffer> DivideNextStep(const Chunk& chunk, const StepRules& rules) {
  PUSHPULL_ASSIGN_OR_RETURN(SampleQueue queue, SampleQueue::Decode(chunk.state().value()->bytes()));
  std::vector<WorkerId> counted;
  std::vector<WorkerId> next =
      MembersAt(rules.membership(), Step{chunk.state().version().value() + 1});
  for (const Contribution& contribution : chunk.step().counted().contributors()) {
    if (contribution.weight != kKeepsSamples) counted.push_back(contribution.worker);
    if (contribution.weight == 0) std::erase(next, contribution.worker);
  }
  queue.SetNumSamples(chunk.step().counted().learning_rate());
  queue.Advance(counted, std::move(next));
  // The value records how many samples its step has, so all workers use the same number, and a
  // change falls between two steps.
  if (rules.global_batch() > 0) queue.SetGlobalBatch(rules.global_batch());
  PUSHPULL_ASSIGN_OR_RETURN(HostBuffer value, HostBuffer::Uninitialized(SampleQueue::kBytes));
  const std::vector<std::byte> bytes = queue.Encode();
  absl::c_copy(bytes, value.bytes().begin());
  return value;
}

}  // namespace pushpull
