// SPDX-License-Identifier: Apache-2.0
//
// Which servers hold which virtual shard. A job has 1,024 virtual shards for its whole life; a
// chunk never changes its shard, but shards move between servers. Each shard has a replica set
// under an epoch, and the higher epoch wins. placement.h chooses the first entries. Pure: no I/O,
// no clock, no thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/ids.h"

namespace pushpull {

inline constexpr uint32_t kShardCount = 1024;

// Whether an id from a message names a shard.
constexpr bool IsShard(ShardId shard) {
  return shard.value() < kShardCount;
}

enum class ReplicaRole { kNone, kLearner, kFollower, kPrimary };

constexpr bool IsCopy(ReplicaRole role) {
  return role == ReplicaRole::kFollower || role == ReplicaRole::kLearner;
}

struct ReplicaSet {
  Epoch epoch;                           // 0.0 until the coordinator has placed the shard
  std::optional<ServerId> primary;       // none before that, and during a failover
  std::vector<ServerId> followers = {};  // acknowledge a version before it is published
  std::vector<ServerId> learners = {};   // being brought up to date; not waited for

  ReplicaRole RoleOf(ServerId server) const;
  friend bool operator==(const ReplicaSet&, const ReplicaSet&) = default;
};

// The replica set of every shard, as far as the map's owner knows. A value of about 72 KiB: readers
// share an immutable snapshot, std::shared_ptr<const ShardMap>, and the owner copies it only when
// an entry changes. Thread-compatible.
class ShardMap {
 public:
  // No shard is placed.
  ShardMap() : entries_(kShardCount) {}

  // Takes the entry if its epoch is above the current entry's; returns whether it did. A repeated
  // or older entry changes nothing, so entries may arrive in any order and more than once.
  // IsShard(shard) must hold.
  bool Update(ShardId shard, ReplicaSet entry);

  // From now on rejects entries of a lower term, even for shards without an entry. Never lowered.
  void Promise(Term term) { promised_ = std::max(promised_, term); }
  Term promised() const { return promised_; }

  // IsShard(shard) must hold.
  const ReplicaSet& entry(ShardId shard) const;
  bool is_placed(ShardId shard) const { return entry(shard).epoch > Epoch{}; }

 private:
  std::vector<ReplicaSet> entries_;  // [kShardCount]
  Term promised_;
};

}  // namespace pushpull
