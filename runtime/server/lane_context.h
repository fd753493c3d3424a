// SPDX-License-Identifier: Apache-2.0
//
// What all parts of one lane use.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "runtime/base/executor.h"
#include "runtime/base/log.h"
#include "runtime/membership/control.h"
#include "runtime/metrics/sync_phase.h"
#include "runtime/server/checkpoint_writer.h"
#include "runtime/server/server_metrics.h"
#include "runtime/server/shard.h"
#include "runtime/server/step_policy.h"
#include "runtime/store/buffer_pool.h"
#include "runtime/transport/channel.h"

namespace pushpull {

// Limit on connections to one lane from peers that are in no view, or on no list of servers. An
// honest peer soon is; others would hold memory indefinitely. One more closes the oldest.
constexpr size_t kStrangersMax = 16;

// Sends to the coordinator; called on the lane's executor.
using CoordinatorNotifier = std::function<void(FromMember)>;

struct LaneOptions {
  std::string job;
  ServerId server;
  Incarnation incarnation;
  size_t index = 0;
  size_t lane_count = 1;
  FaultPoint fault_point;  // for tests
  // Another server is asked again after this long without an answer.
  Duration retry_after = std::chrono::milliseconds(50);
  // Both outlive the lane.
  Transport& transport;
  ServerMetrics& metrics;
  std::shared_ptr<CheckpointWriter> writer;
  Log log;
  CoordinatorNotifier notify;
};

// Thread-confined to the executor. Outlives the parts that use it; each changes only what it owns.
struct LaneContext : LaneOptions {
  explicit LaneContext(LaneOptions options)
      : LaneOptions(std::move(options)), shards(server, index, lane_count) {}

  Executor& executor = transport.lane(index);
  // Shared with payloads in flight, which return their memory to it.
  const std::shared_ptr<BufferPool> pool = std::make_shared<BufferPool>();
  LaneShards shards;
  StepRules rules;
};

}  // namespace pushpull
