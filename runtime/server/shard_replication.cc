// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/shard_replication.h"

#include <optional>
#include <utility>

namespace pushpull {

ShardReplication::ShardReplication(const ReplicationOptions& options,
                                   ReplicationDependencies dependencies,
                                   const Log& log)
    : dependencies_(std::move(dependencies)),
      outgoing_(options.server, dependencies_, *this, log),
      incoming_(options, dependencies_, log) {}

void ShardReplication::Install(Shard& shard, const ReplicaSet& entry, ShardMember::Via via) {
  const ShardMember::Change change = shard.member().Install(entry, via);
  if (change.is_taken) Follow(shard, change, false);
}

// An entry is in force. Requests are redirected before the state is cleared, and a new primary
// publishes before it sends on: both find the state that the entry before left.
void ShardReplication::Follow(Shard& shard,
                              const ShardMember::Change& change,
                              bool has_handed_over) {
  const ShardMember& member = shard.member();
  if (change.is_demoted) dependencies_.host.OnDemoted(shard);
  if (member.role() == ReplicaRole::kNone)
    for (const std::unique_ptr<Chunk>& chunk : shard.chunks()) chunk->Clear();
  incoming_.OnEntry(shard, change, has_handed_over);
  if (member.is_primary()) dependencies_.host.OnPublishable(shard);
  outgoing_.OnEntry(shard);
}

// The old primary takes no pushes from now on; those that arrive wait. When the next one has
// acknowledged everything, the entry that makes it primary is installed here first, so that nothing
// of this log can be published after that.
void ShardReplication::BeginHandover(Shard& shard, const Handover& message) {
  if (!shard.member().BeginHandover(message.current, message.next)) return;
  incoming_.Connect(*message.next.primary, shard.id());  // connecting takes a moment
  FinishHandover(shard);
}

void ShardReplication::FinishHandover(Shard& shard) {
  const std::optional<ReplicaSet> due = shard.member().HandoverDue();
  if (!due) return;
  Follow(shard, shard.member().Install(*due, ShardMember::Via::kCoordinator), true);
}

bool ShardReplication::TakeHandover(Shard& shard, const ReplicaSet& entry) {
  Install(shard, entry, ShardMember::Via::kHandedOver);
  // Refused: it is of a coordinator that was replaced.
  if (shard.member().entry() != entry) return false;
  dependencies_.notify(HandedOver{shard.id(), entry});
  return true;
}

void ShardReplication::OnAcknowledged(Shard& shard) {
  dependencies_.host.OnPublishable(shard);
  FinishHandover(shard);
}

}  // namespace pushpull
