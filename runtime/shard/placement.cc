// SPDX-License-Identifier: Apache-2.0
//
// Greedy assignment; see placement.h.
#include "runtime/shard/placement.h"

#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace pushpull {

namespace {

absl::Status CheckWeights(std::span<const double> weights) {
  bool has_positive = false;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0) {
      return absl::InvalidArgumentError(absl::StrCat("weight of ",
                                                     ToString(ServerId(static_cast<uint32_t>(i))),
                                                     ": must be finite and at least 0, is ",
                                                     weights[i]));
    }
    has_positive = has_positive || weights[i] > 0;
  }
  if (!has_positive) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights: none of the ", weights.size(), " servers has one above 0"));
  }
  return absl::OkStatus();
}

// Weights divided by their sum, and first by the largest, so that the sum cannot overflow.
std::vector<double> Shares(std::span<const double> weights) {
  const double largest = *absl::c_max_element(weights);
  std::vector<double> shares(weights.begin(), weights.end());
  for (double& share : shares) share /= largest;
  const double sum = absl::c_accumulate(shares, 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

// A server that can take chunks.
struct Candidate {
  using LoadedShard =
      std::pair<uint64_t, ShardId>;  // bytes first: the least loaded comes out first

  double weight = 0;
  uint64_t bytes = 0;
  std::priority_queue<LoadedShard, std::vector<LoadedShard>, std::greater<>> shards;
};

absl::StatusOr<std::vector<Candidate>> MakeCandidates(const PlacementState& state) {
  PUSHPULL_RETURN_IF_ERROR(CheckWeights(state.weights));
  if (state.primaries.size() != kShardCount || state.shard_bytes.size() != kShardCount) {
    return absl::InvalidArgumentError(absl::StrCat("place chunks: got primaries of ",
                                                   state.primaries.size(),
                                                   " and bytes of ",
                                                   state.shard_bytes.size(),
                                                   " shards, expected ",
                                                   kShardCount));
  }
  std::vector<Candidate> servers(state.weights.size());
  for (size_t i = 0; i < servers.size(); ++i) servers[i].weight = state.weights[i];
  for (uint32_t shard = 0; shard < kShardCount; ++shard) {
    const ServerId server = state.primaries[shard];
    if (server.value() >= servers.size()) {
      return absl::InvalidArgumentError(absl::StrCat("place chunks: shard ",
                                                     shard,
                                                     " is on ",
                                                     ToString(server),
                                                     ", there are weights for ",
                                                     servers.size(),
                                                     " servers"));
    }
    servers[server.value()].bytes += state.shard_bytes[shard];
    servers[server.value()].shards.emplace(state.shard_bytes[shard], ShardId(shard));
  }
  std::erase_if(
      servers, [](const Candidate& server) { return server.weight == 0 || server.shards.empty(); });
  if (servers.empty()) {
    return absl::InvalidArgumentError(
        "place chunks: no server has both a shard and a weight above 0");
  }
  return servers;
}

// Positions of the chunks, largest first; among equal ones the lower position first.
std::vector<size_t> LargestFirst(std::span<const uint64_t> chunk_bytes) {
  std::vector<size_t> order(chunk_bytes.size());
  absl::c_iota(order, size_t{0});
  absl::c_stable_sort(order, [&](size_t a, size_t b) { return chunk_bytes[a] > chunk_bytes[b]; });
  return order;
}

Candidate& LeastLoaded(std::vector<Candidate>& servers, uint64_t chunk_bytes) {
  const auto load_with = [chunk_bytes](const Candidate& server) {
    return static_cast<double>(server.bytes + chunk_bytes) / server.weight;
  };
  return *absl::c_min_element(
      servers, [&](const Candidate& a, const Candidate& b) { return load_with(a) < load_with(b); });
}

}  // namespace

absl::StatusOr<std::vector<ServerId>> AssignShards(std::span<const double> weights) {
  PUSHPULL_RETURN_IF_ERROR(CheckWeights(weights));
  const std::vector<double> shares = Shares(weights);
  const auto num_weighted = absl::c_count_if(shares, [](double share) { return share > 0; });
  // Tijdeman's slack 1 / (2n - 2): a server's turn comes when it lags its share by the slack, and
  // its deadline is when it would lag by 1 minus the slack. For a lone server it is always its
  // turn.
  const double slack = num_weighted > 1 ? 1 / (2 * static_cast<double>(num_weighted) - 2) : 0;

  std::vector<uint32_t> num_shards(shares.size(), 0);
  std::vector<ServerId> primaries;
  primaries.reserve(kShardCount);
  for (uint32_t shard = 0; shard < kShardCount; ++shard) {
    size_t chosen = shares.size();
    double earliest = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < shares.size(); ++i) {
      if (shares[i] == 0) continue;
      // The tolerance keeps rounding from hiding a server whose turn has exactly come.
      const bool has_turn = shares[i] * (shard + 1) - num_shards[i] >= slack - 1e-9;
      const double deadline = (num_shards[i] + 1 - slack) / shares[i];
      if (has_turn && deadline < earliest) {
        chosen = i;
        earliest = deadline;
      }
    }
    PUSHPULL_CHECK(chosen < shares.size());  // their lags add up to 1, so for one it is its turn
    ++num_shards[chosen];
    primaries.emplace_back(static_cast<uint32_t>(chosen));
  }
  return primaries;
}

absl::StatusOr<std::vector<ShardId>> AssignChunks(std::span<const uint64_t> chunk_bytes,
                                                  const PlacementState& state) {
  PUSHPULL_ASSIGN_OR_RETURN(std::vector<Candidate> servers, MakeCandidates(state));

  std::vector<ShardId> shards(chunk_bytes.size());
  for (const size_t chunk : LargestFirst(chunk_bytes)) {
    Candidate& server = LeastLoaded(servers, chunk_bytes[chunk]);
    const auto [shard_bytes, shard] = server.shards.top();
    server.shards.pop();
    server.shards.emplace(shard_bytes + chunk_bytes[chunk], shard);
    server.bytes += chunk_bytes[chunk];
    shards[chunk] = shard;
  }
  return shards;
}

}  // namespace pushpull
