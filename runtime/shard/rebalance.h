// SPDX-License-Identifier: Apache-2.0
//
// Which server should hold which shard after servers have joined, left or died: a plan that starts
// from the present holders and moves few bytes. The coordinator carries it out while training goes
// on; first placements are in placement.h.
// Pure and deterministic: the same arguments give the same plan on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/ids.h"

namespace pushpull {

// The heaviest server over the mean, in bytes per weight, that a plan accepts.
inline constexpr double kImbalanceMax = 1.05;

// A server that should hold shards. weight: its share relative to others; finite, above 0. rack:
// servers of which it is not known count as one rack.
struct TargetServer {
  ServerId server;
  double weight = 1;
  std::string rack = {};
};

struct ShardHolders {
  uint64_t bytes = 0;
  std::optional<ServerId> primary;     // now; nobody while a failover is under way
  std::vector<ServerId> members = {};  // others that hold the shard or are being sent it
};

// The primary that each shard should have.
//
// shards:  [num_shards]. Read during the call.
// targets: at least one, no server twice. Read during the call.
//
// The heaviest server gets at most kImbalanceMax times the mean where moves of one shard, or swaps
// of two, lead there; else the best that they reach, which for shards of one size is optimal. A
// shard stays unless its primary is not a target or is overloaded. An overloaded server gives away
// only the excess, first to servers that hold the shard already, which moves no bytes. Idempotent:
// a plan that was carried out is returned unchanged.
//
// Returns [num_shards], all of them targets. O(num_shards^2) at worst.
std::vector<ServerId> PlanPrimaries(std::span<const ShardHolders> shards,
                                    std::span<const TargetServer> targets);

// The followers that each shard should have beside its primary.
//
// shards:      [num_shards]; `members` may include any server, also the previous primary.
// primaries:   [num_shards] of PlanPrimaries.
// targets:     as for PlanPrimaries.
// replication: followers of each shard, as far as there are targets.
//
// Never the primary, never a server twice. The primary and its followers are in as many racks as
// there are, one for each at most; so with a follower and two racks a shard survives the loss of
// either. Spread by bytes per weight like primaries, as far as that allows. Members stay and are
// preferred.
//
// Returns [num_shards][min(replication, num_targets - 1)] in the order of their ids.
std::vector<std::vector<ServerId>> PlanFollowers(std::span<const ShardHolders> shards,
                                                 std::span<const ServerId> primaries,
                                                 std::span<const TargetServer> targets,
                                                 uint32_t replication);

}  // namespace pushpull
