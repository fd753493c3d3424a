// SPDX-License-Identifier: Apache-2.0
//
// The job's tensors and the shards of their chunks: the first worker's list is placed, and every
// other list must agree with it. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/shard/chunk.h"
#include "runtime/shard/shard_map.h"
#include "runtime/store/placed_tensor.h"

namespace pushpull {

// Thread-compatible.
class TensorCatalog {
 public:
  TensorCatalog() = default;
  // The tensors that the servers report to a new coordinator. kInvalidArgument: they contradict
  // each other, so the reports cannot be used.
  static absl::StatusOr<TensorCatalog> FromPlaced(const std::vector<PlacedTensor>& tensors);

  // Sets where chunks can be placed. `primaries[s]` is the server of shard s, `weights[i]` the
  // weight of server i.
  void SetServers(std::vector<ServerId> primaries, std::vector<double> weights) {
    primaries_ = std::move(primaries);
    weights_ = std::move(weights);
  }

  // Places the first worker's list; compares every other list with it. Call SetServers first.
  //
  // kInvalidArgument: the list itself is wrong (empty, a duplicate name, a bad shape or optimizer),
  // or it differs from what is registered; the text says in which tensor and how.
  absl::Status Register(WorkerId worker, std::span<const TensorSpec> tensors);

  // All tensors in the order of their ids; empty before the first registration.
  const std::vector<PlacedTensor>& tensors() const { return tensors_; }
  std::vector<TensorSpec> Specs() const;
  uint64_t version() const { return tensors_.size(); }
  // Bytes of the chunks of each shard. [kShardCount]
  const std::vector<uint64_t>& shard_bytes() const { return shard_bytes_; }

 private:
  absl::Status Place(std::span<const TensorSpec> tensors);

  std::vector<ServerId> primaries_;
  std::vector<double> weights_;
  std::vector<uint64_t> shard_bytes_ = std::vector<uint64_t>(kShardCount, 0);
  ChunkTable chunks_;
  std::vector<PlacedTensor> tensors_;
  absl::flat_hash_map<std::string, size_t> index_by_name_;
  WorkerId first_worker_;
};

}  // namespace pushpull
