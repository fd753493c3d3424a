// SPDX-License-Identifier: Apache-2.0
//
// Which server should hold which shard after servers have joined, left or died: a plan that starts
// from the current holders and moves few bytes. The coordinator carries it out while training
// continues; placement.h makes the first placement.
// Pure and deterministic: the same arguments give the same plan on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/ids.h"

namespace pushpull {

// The highest ratio of the heaviest server to the mean, in bytes per weight, that a plan accepts.
inline constexpr double kImbalanceMax = 1.05;

// A server that should hold shards. weight: its share relative to others; finite, above 0. rack:
// servers whose rack is unknown count as one rack.
struct TargetServer {
  ServerId server;
  double weight = 1;
  std::string rack = {};
};

struct ShardHolders {
  uint64_t bytes = 0;
  std::optional<ServerId> primary;     // at present; none while a failover is under way
  std::vector<ServerId> members = {};  // others that hold the shard or are receiving it
};

// The primary that each shard should have.
//
// shards:  [num_shards]. Read during the call.
// targets: at least one, no server twice. Read during the call.
//
// The heaviest server gets at most kImbalanceMax times the mean if moves of one shard, or swaps of
// two, can achieve it; otherwise the best they achieve, which for shards of equal size is optimal.
// A shard stays unless its primary is not a target or is overloaded. An overloaded server gives
// away only the excess, first to servers that already hold the shard, which moves no bytes.
// Idempotent: a plan that has been carried out is returned unchanged.
//
// Returns [num_shards], all of them targets. O(num_shards^2) at worst.
std::vector<ServerId> PlanPrimaries(std::span<const ShardHolders> shards,
                                    std::span<const TargetServer> targets);

// The followers that each shard should have besides its primary.
//
// shards:      [num_shards]; `members` may include any server, even the previous primary.
// primaries:   [num_shards], from PlanPrimaries.
// targets:     as for PlanPrimaries.
// replication: followers per shard, if there are enough targets.
//
// Never the primary, never a server twice. The primary and its followers use as many racks as there
// are, up to one each; so with one follower and two racks a shard survives the loss of either rack.
// Within that limit, followers are spread by bytes per weight like primaries. Members stay and are
// preferred.
//
// Returns [num_shards][min(replication, num_targets - 1)] in the order of their ids.
std::vector<std::vector<ServerId>> PlanFollowers(std::span<const ShardHolders> shards,
                                                 std::span<const ServerId> primaries,
                                                 std::span<const TargetServer> targets,
                                                 uint32_t replication);

}  // namespace pushpull
