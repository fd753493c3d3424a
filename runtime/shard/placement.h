// SPDX-License-Identifier: Apache-2.0
//
// Which server gets which shard, and which shard gets which chunk, so that every server holds bytes
// in proportion to its weight. rebalance.h plans later moves of shards. Pure and deterministic: the
// same arguments give the same result on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/shard/shard_map.h"

namespace pushpull {

// The primary of each of the kShardCount shards.
//
// weights: [num_servers], server i's at position i; finite, at least 0. A server of weight 0 gets
// no shard.
//
// Of the first k shards, for every k, a server with share w = weight / sum of weights gets fewer
// than k w + 1 and more than k w - 1: every prefix is balanced as well.
//
// kInvalidArgument: a weight is negative or not finite, or none is above 0. Do not retry.
//
// Source: R. Tijdeman, The chairman assignment problem, Discrete Mathematics 32 (1980): among the
// servers whose turn has come, the one with the earliest deadline.
absl::StatusOr<std::vector<ServerId>> AssignShards(std::span<const double> weights);

// The input of AssignChunks besides the chunks. Read during the call.
struct PlacementState {
  std::span<const ServerId> primaries;    // [kShardCount] the server of each shard
  std::span<const uint64_t> shard_bytes;  // [kShardCount] bytes that each shard already holds
  std::span<const double> weights;        // [num_servers] as for AssignShards
};

// The shard of each chunk of a new batch.
//
// chunk_bytes: [num_chunks].
//
// Largest chunk first, each to the server whose (bytes + chunk) / weight is least, and on it to the
// shard with the fewest bytes; ties go to the lower id. Servers without a shard or with weight 0
// get none. O(num_chunks * num_servers).
//
// kInvalidArgument: a weight is negative or not finite, sizes disagree, a shard's server has no
// weight, or no server with a shard has a weight above 0. Do not retry.
//
// Source: R. L. Graham, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17 (1969),
// longest processing time first, on machines of unequal speed.
absl::StatusOr<std::vector<ShardId>> AssignChunks(std::span<const uint64_t> chunk_bytes,
                                                  const PlacementState& state);

}  // namespace pushpull
