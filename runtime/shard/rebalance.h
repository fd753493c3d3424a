// SPDX-License-Identifier: Apache-2.0
//
// Who should hold which shard when servers have come, gone or died: a plan that starts from who
// holds what now and moves little. It says where to arrive, not how: how a shard moves while
// training goes on is the coordinator's business, and where chunks go first is in placement.h.
// Pure and deterministic: the same arguments give the same plan on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/ids.h"

namespace pushpull {

// Heaviest server over the mean, in bytes per weight, that a plan is content with.
inline constexpr double kImbalanceMax = 1.05;

// A server that shall hold shards. weight: its share relative to others; finite, above 0.
struct TargetServer {
  ServerId server;
  double weight = 1;
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
// of two, lead there; else what they lead to, which for shards of one size is the best there is.
// A shard stays where it is unless its primary is no target or has too much. A server with too much
// gives away only what it must, first to servers that hold the shard already: that moves no bytes.
// A plan that was carried out is planned again as it is.
//
// Returns [num_shards], all of them targets. O(num_shards^2) at worst.
std::vector<ServerId> PlanPrimaries(std::span<const ShardHolders> shards,
                                    std::span<const TargetServer> targets);

// The followers that each shard should have beside its primary.
//
// shards:      [num_shards]; `members` may have anyone, also the primary before the present plan.
// primaries:   [num_shards] of PlanPrimaries.
// targets:     as for PlanPrimaries.
// replication: followers of each shard, as far as there are targets.
//
// Never the primary, never one twice; spread by bytes per weight as PlanPrimaries spreads
// primaries, as far as that allows. Members stay and are taken first.
//
// Returns [num_shards][min(replication, num_targets - 1)] in the order of their ids.
std::vector<std::vector<ServerId>> PlanFollowers(std::span<const ShardHolders> shards,
                                                 std::span<const ServerId> primaries,
                                                 std::span<const TargetServer> targets,
                                                 uint32_t replication);

}  // namespace pushpull
