// SPDX-License-Identifier: Apache-2.0
//
// Limits how many shards are copied to or from one server at a time. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <utility>

#include "runtime/base/ids.h"
#include "runtime/shard/shard_map.h"

namespace pushpull {

// Thread-compatible.
class CopySlots {
 public:
  explicit CopySlots(size_t per_server) : per_server_(per_server) {}

  // A shard's learners are copied from its primary while an entry is in force. `Give` follows for
  // each entry that was taken.
  void Take(const ReplicaSet& entry) { Count(entry, true); }
  void Give(const ReplicaSet& entry) { Count(entry, false); }
  bool IsFree(ServerId server) const {
    const auto used = used_.find(server);
    return used == used_.end() || used->second < per_server_;
  }
  // Whether a slot was given back since the last call.
  bool TakeFreed() { return std::exchange(was_freed_, false); }

 private:
  void Count(const ReplicaSet& entry, bool is_taken) {
    if (!entry.primary || entry.learners.empty()) return;  // without primary nobody sends
    const auto count = [&](ServerId server) { is_taken ? ++used_[server] : --used_[server]; };
    count(*entry.primary);
    for (const ServerId learner : entry.learners) count(learner);
    was_freed_ = was_freed_ || !is_taken;
  }

  const size_t per_server_;
  std::map<ServerId, size_t> used_;
  bool was_freed_ = false;
};

}  // namespace pushpull
