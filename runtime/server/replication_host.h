// SPDX-License-Identifier: Apache-2.0
//
// What the replication of a lane's shards uses, and whom it notifies.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/executor.h"
#include "runtime/base/log.h"
#include "runtime/membership/control.h"
#include "runtime/server/lane_shards.h"
#include "runtime/server/server_metrics.h"
#include "runtime/server/shard.h"
#include "runtime/server/step_policy.h"
#include "runtime/store/buffer_pool.h"
#include "runtime/transport/channel.h"

namespace pushpull {

// Sends to the coordinator; called on the lane's executor.
using CoordinatorNotifier = std::function<void(FromMember)>;

// The data path, whose requests wait for replication. Called on the lane's executor.
class ReplicationHost {
 public:
  virtual ~ReplicationHost() = default;
  // Versions of this shard may have become publishable.
  virtual void OnPublishable(Shard& shard) = 0;
  // This server was the shard's primary and is not any more: requests that wait must go elsewhere.
  virtual void OnDemoted(Shard& shard) = 0;
};

struct ReplicationOptions {
  std::string job;
  ServerId server;
  Incarnation incarnation;
  size_t lane = 0;
  // After this long without an answer a member asks again.
  Duration retry_after = std::chrono::milliseconds(50);
};

// Used, not owned, but for `notify`.
struct ReplicationDependencies {
  Transport& transport;
  Executor& executor;
  ServerMetrics& metrics;
  BufferPool& pool;
  LaneShards& shards;
  const StepRules& rules;
  ReplicationHost& host;
  CoordinatorNotifier notify;
};

// All frames of replication are sent in order.
inline constexpr uint8_t kReplicationPriority = 0;

}  // namespace pushpull
