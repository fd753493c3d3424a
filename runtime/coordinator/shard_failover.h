// SPDX-License-Identifier: Apache-2.0
//
// The election of a shard's next primary, after the entry without primary has gone to all servers.
// Every live member promises to take nothing older and reports how far its log is; the longest log
// of those that hold everything that was published wins. Pure.
#pragma once

#include <map>
#include <optional>

#include "absl/functional/function_ref.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/shard/shard_map.h"

namespace pushpull {

// Thread-compatible.
class ShardFailover {
 public:
  void OnPromise(ServerId member, const Promise& promise) { promises_[member] = promise; }
  // The member's process died: another one has to promise anew.
  void Forget(ServerId member) { promises_.erase(member); }
  bool HasPromised(ServerId member) const { return promises_.contains(member); }

  // The members of the next entry, without its epoch, as soon as every live member of `entry` has
  // promised; without primary where none of them is full, which is reported once: the shard is
  // lost then, until a full member returns or the shard is rebuilt. Of logs of equal length
  // `preferred` wins.
  std::optional<ReplicaSet> Elect(const ReplicaSet& entry,
                                  absl::FunctionRef<bool(ServerId)> is_live,
                                  std::optional<ServerId> preferred);
  bool is_lost() const { return is_lost_; }

  // The entry that the next primary of a lost shard, alone, was told to rebuild it under.
  const std::optional<ReplicaSet>& rebuilt() const { return rebuilt_; }
  void SetRebuilt(const ReplicaSet& entry) { rebuilt_ = entry; }

 private:
  std::map<ServerId, Promise> promises_;
  bool is_lost_ = false;
  std::optional<ReplicaSet> rebuilt_;
};

}  // namespace pushpull
