// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/joint_push.h"

#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/replication/joint_frame.h"

namespace pushpull {
namespace {

// The sum's unit is the weight of one of them, so what the others add is the rest.
void SetContributors(std::vector<Contribution> contributors,
                     const FrameHeader& push,
                     ReceivedContribution& received) {
  double samples = 0;
  for (Contribution& contribution : contributors) {
    contribution.learning_rate = push.learning_rate;
    contribution.step = push.step;
    samples += contribution.weight;
  }
  received.contribution = contributors.front();
  received.contribution.weight = push.weight;
  received.more_samples = samples - push.weight;
  contributors.erase(contributors.begin());
  received.joined = std::move(contributors);
}

absl::StatusOr<PushVerdict> JudgeJoint(const StepPolicy& policy,
                                       const Chunk& chunk,
                                       const ReceivedFrame& push,
                                       ReceivedContribution& received) {
  const auto of_chunk = [&](const auto&... text) { return absl::StrCat(chunk.Name(), text...); };
  if (!policy.CountsJointly(chunk))
    return absl::PermissionDeniedError(of_chunk(": its pushes do not count jointly"));
  PUSHPULL_ASSIGN_OR_RETURN(std::vector<Contribution> contributors, DecodeJoint(push.meta));
  const FrameHeader& header = push.header;
  const bool has_sender = absl::c_any_of(contributors, [&](const Contribution& contribution) {
    return contribution.worker == header.worker && contribution.incarnation == header.incarnation;
  });
  // The mean is the sum times its unit, divided by all samples.
  const bool is_unit = chunk.tensor().spec.reduction != Reduction::kMean ||
                       absl::c_any_of(contributors, [&](const Contribution& contribution) {
                         return contribution.weight == header.weight;
                       });
  if (!has_sender || !is_unit || !(header.weight > 0)) {
    return absl::InvalidArgumentError(
        of_chunk(": a joint push without its sender, or whose weight ",
                 header.weight,
                 " is none of its workers'"));
  }
  const uint64_t group = policy.GroupOf(header.worker, header.incarnation);
  std::optional<PushVerdict> all;
  for (const Contribution& contribution : contributors) {
    FrameHeader alone = header;
    alone.worker = contribution.worker;
    alone.incarnation = contribution.incarnation;
    const PushVerdict verdict = policy.Judge(chunk, alone);
    const bool counts = verdict == PushVerdict::kContribute || verdict == PushVerdict::kDuplicate ||
                        verdict == PushVerdict::kAnswered;
    if (!counts && contribution.worker == header.worker) return verdict;
    const bool shares_group =
        group != 0 && policy.GroupOf(contribution.worker, contribution.incarnation) == group;
    if (counts && !shares_group) {
      return absl::PermissionDeniedError(of_chunk(": ",
                                                  ToString(header.worker),
                                                  " has pushed for ",
                                                  ToString(contribution.worker),
                                                  ", with which it shares no group"));
    }
    if (!counts || (all && *all != verdict)) {
      return absl::FailedPreconditionError(
          of_chunk(": step ",
                   header.step.value(),
                   " has a contribution of some of the workers of ",
                   ToString(header.worker),
                   "'s joint push, or ",
                   ToString(contribution.worker),
                   " is not a member"));
    }
    all = verdict;
  }
  SetContributors(std::move(contributors), header, received);
  return *all;
}

}  // namespace

absl::StatusOr<PushVerdict> JudgePush(const StepPolicy& policy,
                                      const Chunk& chunk,
                                      const ReceivedFrame& push,
                                      ReceivedContribution& received) {
  if (IsJoint(push.header)) return JudgeJoint(policy, chunk, push, received);
  const PushVerdict verdict = policy.Judge(chunk, push.header);
  const bool lacks_admission = verdict == PushVerdict::kContribute && policy.LacksAdmission(chunk);
  return lacks_admission ? PushVerdict::kNotAdmitted : verdict;
}

}  // namespace pushpull
