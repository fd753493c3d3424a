// SPDX-License-Identifier: Apache-2.0
//
// One thread of a server's data path. It owns the chunks of its shards and the connections over
// which workers send them, so everything from the header of a push to the publication of the new
// version happens here, without a lock (decisions/0003-lanes.md).
//
//   header  -> PlacePayload: accumulator, buffer or nowhere
//   payload -> OnFrame: check, add or hold
//   last contributor -> Complete: optimizer, version + 1
//            -> ShardReplication: the entry to the followers
//            -> Publish: everybody who waits for it, when they have it
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

#include "runtime/base/executor.h"
#include "runtime/base/log.h"
#include "runtime/consistency/membership_view.h"
#include "runtime/membership/control.h"
#include "runtime/server/checkpoint_reader.h"
#include "runtime/server/chunk_slot.h"
#include "runtime/server/connection.h"
#include "runtime/server/lane_capture.h"
#include "runtime/server/server_metrics.h"
#include "runtime/server/shard_rebuild.h"
#include "runtime/server/shard_replication.h"
#include "runtime/server/shard_slot.h"
#include "runtime/server/shared_pages.h"
#include "runtime/store/buffer_pool.h"

namespace pushpull {

struct LaneOptions {
  std::string job;
  ServerId server;
  Incarnation incarnation;
  size_t index = 0;
  size_t lane_count = 1;
  FaultPoint fault_point;  // for tests
  // After this long without an answer another server is asked again.
  Duration ask_again_after = std::chrono::milliseconds(50);
};

// Thread-confined to its executor, that of its index in the transport, destructor included.
class Lane final : public ShardReplicationHost {
 public:
  // Called on the lane's executor.
  using Teller = std::function<void(FromMember)>;

  // `transport` and `metrics` are used, not owned.
  Lane(LaneOptions options,
       Transport& transport,
       ServerMetrics& metrics,
       std::shared_ptr<CheckpointWriter> writer,
       Log log,
       Teller tell_coordinator);

  void Configure(const JobSettings& settings) {
    settings_ = settings;
    workers_wanted_ = settings.workers;
  }
  // As many as the job shall have.
  void SetWantedWorkers(uint32_t workers);
  // The job's tensors, once. The vector's elements are kept.
  void Install(std::shared_ptr<const std::vector<PlacedTensor>> tensors);
  // Takes the entries of this lane's shards; what this server has of those it is a member of.
  std::vector<Promise> SetReplicas(const pushpull::SetReplicas& message);
  // A coordinator of this term is in charge: what a lower one decided is refused from now on.
  void PromiseTerm(Term term);
  // What this lane knows, for a new coordinator; tensors are those of the whole job.
  ServerReport Report() const;
  void SetServers(const std::vector<ServerEndpoint>& servers);
  void BeginHandover(const Handover& message);
  // Takes a chunk from a checkpoint, before the first entry of its shard.
  void Restore(RestoredChunk restored);
  // The memory, in bytes, beside which the chunks that it would capture can be changed.
  std::vector<uint64_t> CaptureSizes() const;
  void BeginCapture(const Capture& order);
  void EndCapture(uint64_t attempt) { capture_.End(attempt); }
  // Collects what workers and, where it is read, a checkpoint have of the shard; reigns over it
  // when all is here, and says so.
  void BeginRebuild(const RebuildShard& order, bool reads_checkpoint);
  void TakeStored(Epoch epoch, RestoredChunk stored);
  void EndReading(ShardId shard, Epoch epoch, const absl::Status& status, std::optional<Step> step);
  ViewAnswer Propose(const View& view);
  void Activate(const View& view);
  void Adopt(const Hello& hello, std::unique_ptr<Channel> channel);
  ServerStats Stats() const;

  // The frames of a connection; called by Connection.
  std::span<std::byte> PlacePayload(Connection& connection, const FrameHeader& header);
  bool TakesInPlace(Connection& connection, const FrameHeader& header);
  void OnFrame(Connection& connection, const ReceivedFrame& frame);
  void OnPayloadLost(Connection& connection);
  void OnClosed(Connection& connection, const absl::Status& why);

  void OnPublishable(ShardSlot& shard) override;
  void OnReignEnded(ShardSlot& shard) override;
  void OnInconsistent(const absl::Status& why) override;
  void TellCoordinator(FromMember message) override;
  const MembershipView& membership() const override { return membership_; }

 private:
  void OnInit(Connection& connection, ChunkSlot& slot, const ReceivedFrame& frame);
  void OnPull(Connection& connection, ChunkSlot& slot, const ReceivedFrame& frame);
  void OnPush(Connection& connection, ChunkSlot& slot, const ReceivedFrame& frame);
  void Contribute(Connection& connection, ChunkSlot& slot, HeldContribution contribution);

  // lane_rebuild.cc
  std::span<std::byte> PlaceCopy(Connection& connection, const FrameHeader& header);
  void OnCopy(Connection& connection, const FrameHeader& header);
  // An entry of epoch `known` is in force: what was to be under an earlier one is not wanted any
  // more.
  void DropRebuild(ShardId shard, Epoch known);
  ShardRebuild* FindRebuild(ShardId shard, Epoch epoch);
  void FinishRebuildIfComplete(ShardId shard);

  // lane_codec.cc: what has been received as a codec's bytes becomes values. False: it is refused.
  bool DecodeReceived(Connection& connection,
                      const ChunkSlot& slot,
                      Reception& reception,
                      Waiter& waiter);
  // Whether a push of the worker may be added to the chunk's sum as soon as it is here, and needs
  // no decoding.
  bool MayAddDirectly(const ChunkSlot& slot, const FrameHeader& push) const;
  // The values of a whole contribution, wherever they are.
  static std::span<const float> ReceivedValues(const ChunkSlot& slot, const Reception& reception);
  // lane_in_place.cc: contributions that are added from where the worker has them.
  static std::span<const float> ValuesInPlace(const ReceivedFrame& frame);
  // And values that workers read from where they are here.
  bool MayLeaveInPlace(const FrameHeader& push) const;
  static bool MayHavePages(const ChunkSlot& slot);
  void SharePages(Connection& connection, const FrameHeader& push);
  bool PublishInPlace(const ChunkSlot& slot, const Waiter& waiter, const HostBuffer& value);
  void PreparePages(Connection& connection, ChunkSlot& slot, const FrameHeader& push);
  void MakePages(ChunkSlot& slot);
  void AddInPlace(ChunkSlot& slot, const Reception& reception, HeldContribution& contribution);
  // Looks for a NaN or an infinity in what has been received and applies the policy. False: the
  // contribution is refused.
  bool PassesChecks(ChunkSlot& slot, const Reception& reception, HeldContribution& contribution);
  void AddHeld(ChunkSlot& slot);
  void CompleteIfReady(ChunkSlot& slot);
  void Complete(ChunkSlot& slot);
  Payload SharedSum(ChunkSlot& slot);
  void FinishTiming(const ChunkSlot& slot, Waiter& waiter);
  void Publish(ChunkSlot& slot);
  void CountContributors(ChunkSlot& slot);

  // lane_admission.cc: the chunk decides who counts in the step, and has all that it needs for
  // that.
  bool Leads(const ChunkSlot& slot) const;
  bool HasQuorum(const ChunkSlot& slot) const;
  bool LacksAdmission(const ChunkSlot& slot) const;
  void DropAsksOfTheGone(ChunkSlot& slot);
  // False: the frame's admission cannot be read.
  bool LearnAdmission(ChunkSlot& slot, const ReceivedFrame& frame);
  void OnFetch(Connection& connection, ChunkSlot& slot, const ReceivedFrame& frame);
  void AddAdmission(const ChunkSlot& slot, OutgoingFrame& answer) const;

  // lane_gate.cc: gated steps.
  bool is_gated() const { return membership_.active().consistency.gated; }
  // Contributions are kept apart, because it is not known which of them will count.
  bool HoldsApart(const ChunkSlot& slot) const { return is_gated() && !slot.is_leading(); }
  bool HasEverybody(const ChunkSlot& slot) const;
  void SayHeld(Connection& connection, const ChunkSlot& slot, const FrameHeader& push);
  // It is known who counts, and what they have brought is here; only that is left.
  bool HasDecided(ChunkSlot& slot);
  void LeaveOut(ChunkSlot& slot, const Admission& decided);
  void EndContributions(ChunkSlot& slot);
  void DropContributionsOf(ChunkSlot& slot, const View& before, bool all_gone);
  void BeginHandoverIfFree(ShardSlot& shard);

  // This server does not take requests for the chunk now: where they have to go, or later.
  void Redirect(Connection& connection, const FrameHeader& request);
  void SendMoved(Connection& connection, const FrameHeader& request, ShardId shard);
  void Refuse(Connection& connection, const FrameHeader& request, const absl::Status& why);
  void Violate(Connection& connection, const std::string& what);
  void AbandonReception(Connection& connection);
  void Drop(Connection& connection);
  void FailJob(ChunkSlot& slot, const absl::Status& why);
  bool MayAddNow(const ChunkSlot& slot, WorkerId worker) const;
  ChunkSlot* Find(ChunkId chunk);
  // The shard of a chunk; none where there is no such chunk.
  std::optional<ShardId> ShardOf(ChunkId chunk) const;
  // Creates the shard's slots where this server becomes a member for the first time.
  ShardSlot* FindOrAdd(ShardId shard, const ReplicaSet& entry);
  ShardSlot& AddShard(ShardId shard);
  void At(SyncPhase phase) const;
  Step LowestFreeStep(const View& view) const;
  bool is_sync() const { return membership_.active().consistency.is_sync(); }
  void Align(ChunkSlot& slot);
  // Async, Bounded: measures how many versions a push comes late; its learning rate may depend on
  // it.
  void HeedStaleness(const ChunkSlot& slot, HeldContribution& late);

  const LaneOptions options_;
  Executor& executor_;
  ServerMetrics& metrics_;
  const Log log_;
  const Teller tell_coordinator_;
  JobSettings settings_;
  uint32_t workers_wanted_ = 1;
  std::shared_ptr<const std::vector<PlacedTensor>> tensors_;
  std::vector<ShardId> shard_of_chunk_;  // by ChunkId
  // Position of the tensor and of the chunk in it, for every chunk of each shard.
  absl::flat_hash_map<ShardId, std::vector<std::pair<size_t, size_t>>> chunks_of_shard_;
  ShardMap entries_;
  std::vector<pushpull::SetReplicas> early_;  // came before the tensors
  absl::flat_hash_map<ChunkId, std::unique_ptr<ChunkSlot>> slots_;
  absl::flat_hash_map<ShardId, std::unique_ptr<ShardSlot>> shards_;
  // Shared with payloads that are being sent and give their memory back.
  const std::shared_ptr<BufferPool> pool_ = std::make_shared<BufferPool>();
  std::vector<std::shared_ptr<SharedPages>> pages_;
  bool lacks_pages_ = false;  // there was no memory for them
  std::map<ShardId, ShardRebuild> rebuilds_;
  std::map<ShardId, Handover> handovers_;  // that wait for the end of a gated step
  MembershipView membership_;
  ServerStats stats_;
  ShardReplication replication_;
  LaneCapture capture_;
  // Last: connections point to slots, and end first.
  std::map<const Connection*, std::unique_ptr<Connection>> connections_;
};

}  // namespace pushpull
