// SPDX-License-Identifier: Apache-2.0
//
// The path of a push through a lane, from its header to the publication of the new version:
//
//   header  -> PlacePayload: the sum, a buffer, or nowhere
//   payload -> OnPush: check, then add or hold
//   last contributor -> Complete: optimizer, version + 1
//            -> replication: the entry goes to the followers
//            -> Responder: answers all requests that wait for the version, once followers have it
#pragma once

#include <span>

#include "absl/status/status.h"

#include "runtime/server/connection.h"
#include "runtime/server/lane_capture.h"
#include "runtime/server/lane_exchanges.h"
#include "runtime/server/responder.h"
#include "runtime/server/shard_replication.h"
#include "runtime/server/shared_pages.h"

namespace pushpull {

// Thread-confined to its lane.
class StepEngine {
 public:
  // All of them outlive this object. Some are constructed after it: they are first used when a
  // frame arrives.
  StepEngine(const LaneContext& lane,
             LanePages& pages,
             Responder& responder,
             LaneCapture& capture,
             ShardReplication& replication,
             LaneExchanges& exchanges)
      : lane_(lane),
        pages_(pages),
        responder_(responder),
        capture_(capture),
        replication_(replication),
        exchanges_(exchanges) {}

  // Where the payload of an initial value, a push or a pull of rows goes. CheckPayload has passed,
  // and the chunk's shard is open. Empty: it is read and dropped.
  std::span<std::byte> PlacePayload(Connection& connection,
                                    Chunk& chunk,
                                    const FrameHeader& header);
  // Likewise for a push in memory that the worker shares
  // (docs/decisions/0040-registered-memory.md). True: it is added from there. The first
  // contribution is copied into the sum; one that is kept for later is copied too, because the
  // worker may not live that long.
  bool TakesInPlace(Connection& connection, Chunk& chunk, const FrameHeader& header);
  // The payload being received does not count.
  void AbandonReception(Connection& connection);

  // Complete frames for a chunk of an open shard.
  void OnInit(Connection& connection, Chunk& chunk, const FrameHeader& header);
  void OnRead(Connection& connection, Chunk& chunk, const FrameHeader& header);  // pull, fetch
  void OnPush(Connection& connection, Chunk& chunk, const ReceivedFrame& frame);
  // The scale of a step that waits for it; otherwise ignored.
  void OnScale(Chunk& chunk, const FrameHeader& header);
  // Takes the admission that comes with a frame. kDataLoss: it cannot be read.
  absl::Status LearnAdmission(Chunk& chunk, const ReceivedFrame& frame);

  // Adds what may be added now, and completes the step if nothing is missing. Call whenever
  // something has changed that a step may be waiting for.
  void Recheck(Chunk& chunk);
  // A view has come into force.
  void OnViewActivated(Chunk& chunk, StepRules::Contributions contributions);
  // Begins the shard's deferred handover if it need not wait any longer.
  void BeginHandoverIfFree(Shard& shard);

  // Versions of the shard may have become publishable.
  void OnPublishable(Shard& shard);
  // This server is no longer the shard's primary: waiting requests must go elsewhere.
  void OnDemoted(Shard& shard);

  // Adds the counts of contributors and duplicates.
  void AddTo(ServerStats& stats) const;

 private:
  void Contribute(Connection& connection, Chunk& chunk, ReceivedContribution& received);
  bool PassesChecks(Chunk& chunk, const Reception& reception, ReceivedContribution& received);
  bool PassesSumCheck(Chunk& chunk);
  void AddHeld(Chunk& chunk);
  void CompleteIfReady(Chunk& chunk);
  void Complete(Chunk& chunk);
  void FollowView(Chunk& chunk);
  void ReleaseHeld(std::vector<ReceivedContribution> released, Chunk* answered_later);
  void Fail(Chunk& chunk, const absl::Status& why);
  void At(SyncPhase phase) const;

  const LaneContext& lane_;
  LanePages& pages_;
  Responder& responder_;
  LaneCapture& capture_;
  ShardReplication& replication_;
  LaneExchanges& exchanges_;
  uint32_t contributors_min_ = 0;  // over all steps; 0 before the first
  uint32_t contributors_max_ = 0;
  uint64_t duplicates_ = 0;
};

}  // namespace pushpull
