// SPDX-License-Identifier: Apache-2.0
//
// This worker's part in rebuilding a shard that no server holds any more
// (docs/decisions/0020-lost-shards-from-workers.md): it reports which copies of the shard's chunks
// it has, and sends those that the coordinator requests to the server that rebuilds the shard.
#pragma once

#include <map>
#include <vector>

#include "runtime/base/executor.h"
#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/transport/channel.h"
#include "runtime/worker/chunk_copies.h"
#include "runtime/worker/request_table.h"
#include "runtime/worker/shard_routes.h"

namespace pushpull {

// Thread-confined to the worker's executor.
class CopyOffers {
 public:
  // All references outlive this object.
  CopyOffers(const Hello& hello,
             const Executor& executor,
             RequestTable& chunks,
             const ChunkCopies& copies,
             ShardRoutes& routes)
      : hello_(hello), executor_(executor), chunks_(chunks), copies_(copies), routes_(routes) {}

  // This worker's copies of the shard's chunks. Withdraws earlier offers of them.
  std::vector<ChunkCopy> CopiesOf(ShardId shard);
  // Sends copies to the primary of the order's entry, until that entry is in force.
  void Offer(const OfferCopies& order);
  // Whether a server needs a copy from this worker, or may ask for one: a lost shard is rebuilt
  // from the workers' newest copies.
  bool MayBeNeeded() const;
  bool IsOffered(ChunkId chunk, Epoch epoch) const;

  // Removes offers whose entries are now in force.
  void RemoveDone();
  // Resends the chunk's offer, if there still is one.
  void Resend(ChunkId chunk);
  // Resends the offers that travel over this link.
  void ResendOver(const LaneLink& link);
  // Resends offers older than `age` that went over a channel that may lose frames.
  void ResendLost(Duration age);

 private:
  // An offer of one chunk, to the primary of an entry that is not in force yet.
  struct CopyOffer {
    Epoch epoch;
    ServerId primary;
    SteadyTime sent = {};
  };

  LaneLink* LinkOf(ChunkId chunk, const CopyOffer& offer);
  void Send(ChunkId chunk, CopyOffer& offer);

  const Hello& hello_;
  const Executor& executor_;
  RequestTable& chunks_;
  const ChunkCopies& copies_;
  ShardRoutes& routes_;
  std::map<ChunkId, CopyOffer> offers_;
};

}  // namespace pushpull
