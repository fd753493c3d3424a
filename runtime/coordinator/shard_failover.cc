// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/shard_failover.h"

#include <tuple>
#include <utility>

namespace pushpull {

std::optional<ReplicaSet> ShardFailover::Elect(const ReplicaSet& entry,
                                               absl::FunctionRef<bool(ServerId)> is_live,
                                               std::optional<ServerId> preferred) {
  ReplicaSet next;
  std::tuple<uint64_t, bool> best{};
  for (const auto* members : {&entry.followers, &entry.learners}) {
    for (const ServerId member : *members) {
      const auto promise = promises_.find(member);
      if (promise == promises_.end()) {
        if (is_live(member)) return std::nullopt;
        continue;
      }
      // A learner may lack versions that were published before it joined, whatever it says.
      if (members == &entry.learners || !promise->second.is_full) {
        next.learners.push_back(member);
        continue;
      }
      next.followers.push_back(member);
      const std::tuple rank{promise->second.seq, member == preferred};
      if (next.primary && rank <= best) continue;
      next.primary = member;
      best = rank;
    }
  }
  if (next.primary) {
    std::erase(next.followers, *next.primary);
  } else if (std::exchange(is_lost_, true)) {
    return std::nullopt;
  }
  return next;
}

}  // namespace pushpull
