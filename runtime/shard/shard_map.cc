// SPDX-License-Identifier: Apache-2.0
//
// Entries ordered by epoch; see shard_map.h.
#include "runtime/shard/shard_map.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

#include "runtime/base/check.h"

namespace pushpull {

ReplicaRole ReplicaSet::RoleOf(ServerId server) const {
  if (primary == server) return ReplicaRole::kPrimary;
  if (absl::c_linear_search(followers, server)) return ReplicaRole::kFollower;
  return absl::c_linear_search(learners, server) ? ReplicaRole::kLearner : ReplicaRole::kNone;
}

bool ShardMap::Update(ShardId shard, ReplicaSet entry) {
  PUSHPULL_CHECK(IsShard(shard));
  ReplicaSet& held = entries_[shard.value()];
  if (entry.epoch <= held.epoch || entry.epoch.term < promised_) return false;
  held = std::move(entry);
  return true;
}

const ReplicaSet& ShardMap::entry(ShardId shard) const {
  PUSHPULL_CHECK(IsShard(shard));
  return entries_[shard.value()];
}

}  // namespace pushpull
