// SPDX-License-Identifier: Apache-2.0
//
// The frames that a lane answers its workers with.
#pragma once

#include "absl/status/status.h"

#include "runtime/base/executor.h"
#include "runtime/base/log.h"
#include "runtime/server/chunk.h"
#include "runtime/server/connection.h"
#include "runtime/server/lane_pages.h"
#include "runtime/server/lane_shards.h"
#include "runtime/server/server_metrics.h"
#include "runtime/server/step_policy.h"

namespace pushpull {

// Thread-confined to its lane. Sending never blocks.
class Responder {
 public:
  // All of them outlive this object, but for `log`.
  struct Dependencies {
    ServerId self;
    Executor& executor;
    ServerMetrics& metrics;
    const LaneShards& shards;
    const StepRules& rules;
    LanePages& pages;
  };
  Responder(Dependencies dependencies, Log log)
      : dependencies_(dependencies), log_(std::move(log)) {}

  // Answers every request that the chunk's current version satisfies.
  void Publish(Chunk& chunk) const;
  // Gated steps: the contribution is held; the worker asks the leading chunk when all chunks of the
  // step are.
  void SendHeld(const Connection& connection, const Chunk& chunk, const FrameHeader& push) const;
  // This server does not take requests for the chunk now: sends the worker to the primary, or asks
  // it to send the request again.
  void Redirect(Connection& connection, const FrameHeader& request) const;
  void SendMoved(const Connection& connection, const FrameHeader& request, ShardId shard) const;
  void Refuse(const Connection& connection,
              const FrameHeader& request,
              const absl::Status& why) const;

 private:
  const Dependencies dependencies_;
  const Log log_;
};

}  // namespace pushpull
