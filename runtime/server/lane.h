// SPDX-License-Identifier: Apache-2.0
//
// One thread of a server's data path (docs/decisions/0003-lanes.md): it holds the connections of
// workers and of other servers, and carries out the coordinator's decisions about its shards.
// Frames are routed to the StepEngine (step_engine.h), where a push becomes a version; all work on
// a chunk happens on its lane's thread, without a lock.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "runtime/server/checkpoint_reader.h"
#include "runtime/server/connection.h"
#include "runtime/server/lane_capture.h"
#include "runtime/server/lane_context.h"
#include "runtime/server/lane_exchanges.h"
#include "runtime/server/lane_rebuilds.h"
#include "runtime/server/responder.h"
#include "runtime/server/shard_replication.h"
#include "runtime/server/shared_pages.h"
#include "runtime/server/step_engine.h"

namespace pushpull {

// Thread-confined to its executor, the transport's lane of its index, destructor included.
class Lane {
 public:
  explicit Lane(LaneOptions options);

  void Configure(const JobSettings& settings) { context_.rules.Configure(settings); }
  // Sets how many workers the job should have, and how many samples a step.
  void SetDesired(const DesiredSize& desired);
  // Takes the job's tensors, once, and keeps them alive. False: they were installed before.
  bool Install(std::shared_ptr<const std::vector<PlacedTensor>> tensors);
  // Takes the entries of this lane's shards. Returns this server's state of those of which it is a
  // member.
  std::vector<Promise> SetReplicas(const pushpull::SetReplicas& message);
  // A coordinator with this term is in charge: decisions of a lower term are refused from now on.
  void PromiseTerm(Term term) { context_.shards.Promise(term); }
  // Everything this lane knows, for a new coordinator, including all tensors of the job.
  ServerReport Report() const;
  void SetServers(const std::vector<ServerEndpoint>& servers);
  void BeginHandover(const Handover& message);
  // Takes a chunk from a checkpoint, before the first entry of its shard.
  void Restore(RestoredChunk restored);
  // Sizes, in bytes, of the memory that steps need while the current values are captured.
  std::vector<uint64_t> CaptureSizes() const;
  void BeginCapture(const Capture& order) { capture_.Begin(order); }
  void EndCapture(uint64_t attempt) { capture_.End(attempt); }
  LaneRebuilds& rebuilds() { return rebuilds_; }
  ViewAnswer Propose(const View& view);
  void Activate(const View& view);
  // Takes a connection that a worker or another server has opened.
  void Adopt(const Hello& hello, std::unique_ptr<Channel> channel);
  ServerStats Stats() const;

 private:
  friend class Connection;  // hands its frames to the parts

  void Drop(Connection& connection);
  void DropOldestStranger();
  void DropDeparted(const View& before, const View& now);
  Step LowestFreeStep(const View& view) const;

  std::vector<pushpull::SetReplicas> early_;  // arrived before the tensors
  LaneContext context_;
  LanePages pages_;
  Responder responder_;
  LaneExchanges exchanges_;
  StepEngine engine_;
  ShardReplication replication_;
  LaneCapture capture_;
  LaneRebuilds rebuilds_;
  // After the parts: connections point to chunks, and end first.
  std::map<const Connection*, std::unique_ptr<Connection>> connections_;
  uint64_t num_adopted_ = 0;
};

// Combines the statistics of all lanes of a server.
ServerStats Sum(std::span<const ServerStats> lanes);

}  // namespace pushpull
