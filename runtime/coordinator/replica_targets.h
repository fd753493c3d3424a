// SPDX-License-Identifier: Apache-2.0
//
// The servers that shards are planned on: those that are present, with their weights, as far as the
// target names them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/shard/rebalance.h"

namespace pushpull {

// Thread-compatible.
class ReplicaTargets {
 public:
  // A weight that is not finite counts as 0: the server holds nothing.
  void Add(ServerId server, double weight);
  void Remove(ServerId server) { weights_.erase(server); }
  void Set(const std::set<ServerId>& target) { target_ = target; }

  bool IsPresent(ServerId server) const { return weights_.contains(server); }
  std::vector<TargetServer> Servers() const;
  // Followers that each shard has once the whole target is present. Until then surplus members are
  // kept, because they may be the only ones beside the primary.
  size_t NumFollowers(uint32_t replication) const;

 private:
  std::map<ServerId, double> weights_;        // of the servers that are present
  std::optional<std::set<ServerId>> target_;  // none: every server that is present
};

}  // namespace pushpull
