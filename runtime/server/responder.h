// SPDX-License-Identifier: Apache-2.0
//
// The frames with which a lane answers its workers.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/server/connection.h"
#include "runtime/server/lane_context.h"
#include "runtime/server/shared_pages.h"
#include "runtime/server/wire_values.h"

namespace pushpull {

// Thread-confined to its lane. Sending never blocks.
class Responder {
 public:
  // Both outlive this object.
  Responder(const LaneContext& lane, LanePages& pages) : lane_(lane), pages_(pages) {}

  // Answers every request that the chunk's current version satisfies.
  void Publish(Chunk& chunk);
  // This server is no longer the primary: the chunk is published elsewhere from now on.
  void OnDemoted(const Chunk& chunk) { wire_values_.Drop(chunk); }
  // Gated steps: the contribution is held; the worker asks the leading chunk once all chunks of the
  // step are held.
  void SendHeld(const Connection& connection, const Chunk& chunk, const FrameHeader& push) const;
  // Clipping: the pushes' step waits for its scale.
  void SendSquares(Chunk& chunk) const;
  void SendSquares(const Connection& connection, const Chunk& chunk, const FrameHeader& push) const;
  // This server currently takes no requests for the chunk: sends the worker to the primary, or asks
  // it to send the request again.
  void Redirect(Connection& connection, const FrameHeader& request) const;
  void SendMoved(const Connection& connection, const FrameHeader& request, ShardId shard) const;
  void Refuse(const Connection& connection,
              const FrameHeader& request,
              const absl::Status& why) const;
  // Nothing of a joint push counts: its workers push for themselves. An error unless `why` is
  // kFailedPrecondition.
  void RefuseJoint(const Connection& connection,
                   const FrameHeader& push,
                   const absl::Status& why) const;

 private:
  absl::StatusOr<Payload> ValueFor(const Chunk& chunk, const Waiter& waiter);

  const LaneContext& lane_;
  LanePages& pages_;
  WireValues wire_values_;
};

}  // namespace pushpull
