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
  const auto has = [&](const std::vector<ServerId>& servers) {
    return absl::c_linear_search(servers, server);
  };
  if (primary == server) return ReplicaRole::kPrimary;
  if (has(followers)) return ReplicaRole::kFollower;
  return has(learners) ? ReplicaRole::kLearner : ReplicaRole::kNone;
}

bool ShardMap::Update(ShardId shard, ReplicaSet entry) {
  PUSHPULL_CHECK(IsShard(shard));
  ReplicaSet& held = entries_[shard.value()];
  if (entry.epoch <= held.epoch || entry.epoch.term < promised_) return false;
  held = std::move(entry);
  return true;
}

void ShardMap::Promise(Term term) {
  promised_ = std::max(promised_, term);
}

const ReplicaSet& ShardMap::entry(ShardId shard) const {
  PUSHPULL_CHECK(IsShard(shard));
  return entries_[shard.value()];
}

}  // namespace pushpull
