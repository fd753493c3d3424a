// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/replica_targets.h"

#include <algorithm>
#include <cmath>

namespace pushpull {

void ReplicaTargets::Add(ServerId server, double weight) {
  weights_[server] = std::isfinite(weight) ? weight : 0;
}

std::vector<TargetServer> ReplicaTargets::Servers() const {
  std::vector<TargetServer> servers;
  for (const auto& [server, weight] : weights_) {
    if (weight > 0 && (!target_ || target_->contains(server))) servers.push_back({server, weight});
  }
  return servers;
}

size_t ReplicaTargets::NumFollowers(uint32_t replication) const {
  if (!target_) return 0;
  const auto holders = std::count_if(target_->begin(), target_->end(), [&](ServerId server) {
    const auto found = weights_.find(server);
    return found == weights_.end() || found->second > 0;
  });
  return std::min<size_t>(replication, holders == 0 ? 0 : static_cast<size_t>(holders) - 1);
}

}  // namespace pushpull
