// SPDX-License-Identifier: Apache-2.0
//
// The way of a push through a lane, from the header to the publication of the new version:
//
//   header  -> PlacePayload: the sum, a buffer, or nowhere
//   payload -> OnPush: check, then add or hold
//   last contributor -> Complete: optimizer, version + 1
//            -> replication: the entry to the followers
//            -> Responder: all requests that wait for the version, when the followers have it
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
  // All of them outlive this object. Some are constructed after it: used from the first frame on.
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

  // Where the payload of an initial value, a push or a pull of rows goes: CheckPayload has passed,
  // and the chunk's shard is open. Empty: it is read and dropped.
  std::span<std::byte> PlacePayload(Connection& connection,
                                    Chunk& chunk,
                                    const FrameHeader& header);
  // Likewise, of a push in memory that the worker shares
  // (docs/decisions/0040-registered-memory.md): true where it is added from there. The first
  // contribution is copied into the sum; one that is kept for later is copied, too, because the
  // worker may not live as long.
  bool TakesInPlace(Connection& connection, Chunk& chunk, const FrameHeader& header);
  // What is being received does not count.
  void AbandonReception(Connection& connection);

  // Complete frames for a chunk of an open shard.
  void OnInit(Connection& connection, Chunk& chunk, const FrameHeader& header);
  void OnRead(Connection& connection, Chunk& chunk, const FrameHeader& header);  // pull, fetch
  void OnPush(Connection& connection, Chunk& chunk, const ReceivedFrame& frame);
  // The scale of a step that waits for it; ignored elsewhere.
  void OnScale(Chunk& chunk, const FrameHeader& header);
  // Takes the admission that comes with a frame. kDataLoss: it cannot be read.
  absl::Status LearnAdmission(Chunk& chunk, const ReceivedFrame& frame);

  // Adds what may be added now, and completes the step if that makes it complete. Call when
  // something has changed that a step may wait for.
  void Recheck(Chunk& chunk);
  // A view is in force.
  void OnViewActivated(Chunk& chunk, StepRules::Contributions contributions);
  // Begins a handover of the shard that waits, where it need not wait any more.
  void BeginHandoverIfFree(Shard& shard);

  // Versions of the shard may have become publishable.
  void OnPublishable(Shard& shard);
  // This server was the shard's primary and is not any more: requests that wait must go elsewhere.
  void OnDemoted(Shard& shard);

  // Contributors and duplicates.
  void AddTo(ServerStats& stats) const;

 private:
  void Contribute(Connection& connection, Chunk& chunk, ReceivedContribution& received);
  bool PassesChecks(Chunk& chunk, const Reception& reception, ReceivedContribution& received);
  bool PassesSumCheck(Chunk& chunk);
  void AddHeld(Chunk& chunk);
  void ApplyStaleness(const Chunk& chunk, ReceivedContribution& late);
  void CompleteIfReady(Chunk& chunk);
  void Complete(Chunk& chunk);
  void Align(Chunk& chunk);
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
