// SPDX-License-Identifier: Apache-2.0
//
// The workers that a push with kFlagJoint counts for, in its meta.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/consistency/sync_step.h"

namespace pushpull {

// The worker, incarnation and weight of each; by worker index, at most kGroupMembersMax.
std::vector<std::byte> EncodeJoint(std::span<const Contribution> contributors);

// kDataLoss: not what EncodeJoint writes, fewer than two workers, or a weight that is out of
// range (consistency/push_numbers.h).
absl::StatusOr<std::vector<Contribution>> DecodeJoint(std::span<const std::byte> meta);

}  // namespace pushpull
