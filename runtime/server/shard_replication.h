// SPDX-License-Identifier: Apache-2.0
//
// Keeps the members of this lane's shards alike: carries out what replication/shard_member.h
// decides when an entry comes into force or a handover is due. Streams out are in
// primary_streams.h, streams in are in follower_streams.h.
#pragma once

#include <memory>
#include <vector>

#include "runtime/server/follower_streams.h"
#include "runtime/server/primary_streams.h"
#include "runtime/server/replication_host.h"

namespace pushpull {

// Thread-confined to the lane.
class ShardReplication final : public PrimaryStreamsHost {
 public:
  ShardReplication(const ReplicationOptions& options,
                   ReplicationDependencies dependencies,
                   const Log& log);

  // Takes the entry, where it is newer, and follows it.
  void Install(Shard& shard, const ReplicaSet& entry, ShardMember::Via via);
  void BeginHandover(Shard& shard, const Handover& message);

  PrimaryStreams& outgoing() { return outgoing_; }
  const PrimaryStreams& outgoing() const { return outgoing_; }
  FollowerStreams& incoming() { return incoming_; }
  const FollowerStreams& incoming() const { return incoming_; }

  bool TakeHandover(Shard& shard, const ReplicaSet& entry) override;
  void OnAcknowledged(Shard& shard) override;

 private:
  void Follow(Shard& shard, const ShardMember::Change& change, bool has_handed_over);
  void FinishHandover(Shard& shard);

  const ReplicationDependencies dependencies_;
  PrimaryStreams outgoing_;
  FollowerStreams incoming_;
};

}  // namespace pushpull
