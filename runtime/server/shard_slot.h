// SPDX-License-Identifier: Apache-2.0
//
// One virtual shard on a lane: its place in the replica set and its chunks.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/ids.h"
#include "runtime/consistency/worker_clocks.h"
#include "runtime/replication/shard_member.h"
#include "runtime/tensor/host_buffer.h"

namespace pushpull {

class ChunkSlot;
class PeerConnection;

// A copy that is arriving in parts.
struct CopyUnderWay {
  uint32_t next_part = 0;
  HostBuffer value;
  HostBuffer state;
  size_t state_bytes = 0;  // of `state` that are here
  std::vector<WorkerClock> clocks;
};

// Thread-confined to its lane.
struct ShardSlot {
  ShardSlot(ShardId shard, ServerId self, std::vector<ChunkSlot*> slots)
      : id(shard), chunks(std::move(slots)), member(self, chunks.size()) {}

  std::vector<ChunkStamp> Stamps() const;

  const ShardId id;
  const std::vector<ChunkSlot*> chunks;  // in the order of their ids
  ShardMember member;

  // On the primary: the connection on which each other member joined.
  std::map<ServerId, PeerConnection*> joined;

  // On the others.
  CopyUnderWay copy;
  SteadyTime heard_at;  // of the primary; or when it was last asked
  bool has_handed_over =
      false;  // it reigned, and the primary it joins may not know yet that it does
};

}  // namespace pushpull
