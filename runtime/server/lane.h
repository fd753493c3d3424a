// SPDX-License-Identifier: Apache-2.0
//
// One thread of a server's data path (docs/decisions/0003-lanes.md): connections of workers and of
// other servers, and what the coordinator decides about its shards. Frames are routed to the
// StepEngine (step_engine.h), where a push becomes a version; everything of a chunk happens on its
// lane's thread, without a lock.
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

// Thread-confined to its executor, that of its index in the transport, destructor included.
class Lane {
 public:
  explicit Lane(LaneOptions options);

  void Configure(const JobSettings& settings) { context_.rules.Configure(settings); }
  // How many workers the job should have, and how many samples its steps.
  void SetDesired(const DesiredSize& desired);
  // The job's tensors, once; their memory is kept. False: they were installed before.
  bool Install(std::shared_ptr<const std::vector<PlacedTensor>> tensors);
  // Takes the entries of this lane's shards. Returns this server's state of those that it is a
  // member of.
  std::vector<Promise> SetReplicas(const pushpull::SetReplicas& message);
  // A coordinator of this term is in charge: decisions of a lower one are refused from now on.
  void PromiseTerm(Term term) { context_.shards.Promise(term); }
  // Everything this lane knows, for a new coordinator; tensors are those of the job.
  ServerReport Report() const;
  void SetServers(const std::vector<ServerEndpoint>& servers);
  void BeginHandover(const Handover& message);
  // Takes a chunk from a checkpoint, before the first entry of its shard.
  void Restore(RestoredChunk restored);
  // Sizes, in bytes, of the memory that steps need while the present values are captured.
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
  friend class Connection;  // gives its frames to the parts

  void Drop(Connection& connection);
  void DropOldestStranger();
  void DropDeparted(const View& before, const View& now);
  Step LowestFreeStep(const View& view) const;

  std::vector<pushpull::SetReplicas> early_;  // came before the tensors
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

// Of all lanes of a server.
ServerStats Sum(std::span<const ServerStats> lanes);

}  // namespace pushpull
