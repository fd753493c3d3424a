// SPDX-License-Identifier: Apache-2.0
//
// Keeps the members of this lane's shards alike: carries out what replication/shard_member.h
// decides, over connections from each member's lane to the primary's (protocol.md sections 3 to 5).
// What workers send and see is lane.h's business.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/executor.h"
#include "runtime/base/log.h"
#include "runtime/consistency/membership_view.h"
#include "runtime/membership/control.h"
#include "runtime/replication/replica_frame.h"
#include "runtime/server/server_metrics.h"
#include "runtime/server/shard_slot.h"
#include "runtime/store/buffer_pool.h"
#include "runtime/transport/channel.h"
#include "runtime/transport/lane_link.h"

namespace pushpull {

class ShardReplication;

// Another server's connection to this lane, over which it joins shards that this lane reigns over.
// Thread-confined to the lane.
class PeerConnection final : public FrameHandler {
 public:
  PeerConnection(ShardReplication& replication,
                 const Hello& hello,
                 std::unique_ptr<Channel> channel);

  std::span<std::byte> PayloadBuffer(Channel& channel, const FrameHeader& header) override;
  void OnFrame(Channel& channel, const ReceivedFrame& frame) override;
  void OnPayloadLost(Channel&, const FrameHeader&) override {}
  void OnClosed(Channel& channel, const absl::Status& why) override;

  ServerId server() const { return server_; }
  Channel& channel() { return *channel_; }

 private:
  ShardReplication& replication_;
  const ServerId server_;
  HostBuffer stamps_;
  std::unique_ptr<Channel> channel_;  // last: it may still call while it goes
};

// A log entry that has just been applied here and goes to the other members.
struct NewEntry {
  LogEntryKind kind = LogEntryKind::kApply;
  Step step;  // it turns this version into the next; of kInitialize: 0
  double learning_rate = 0;
  double gradient_scale = 1;
  std::vector<WorkerId> contributors;
  ContributorsDigest digest = 0;
  std::optional<WorkerClock> update = {};  // a push that was applied by itself
  Step advance_to = {};                    // kAdvance
  Payload payload;
};

// What replication asks of its lane.
class ShardReplicationHost {
 public:
  virtual ~ShardReplicationHost() = default;
  // Versions of this shard may have become publishable.
  virtual void OnPublishable(ShardSlot& shard) = 0;
  // This server was the shard's primary and is no more: requests that wait must go elsewhere.
  virtual void OnReignEnded(ShardSlot& shard) = 0;
  virtual void OnInconsistent(const absl::Status& why) = 0;
  virtual void TellCoordinator(FromMember message) = 0;
  virtual const MembershipView& membership() const = 0;
};

struct ShardReplicationOptions {
  std::string job;
  ServerId server;
  Incarnation incarnation;
  size_t lane = 0;
  // After this long without an answer a member asks again.
  Duration ask_again_after = std::chrono::milliseconds(50);
};

// What replication uses and does not own.
struct ShardReplicationDependencies {
  Transport& transport;
  Executor& executor;
  ServerMetrics& metrics;
  BufferPool& pool;
  ShardReplicationHost& host;
};

// Thread-confined to the lane.
class ShardReplication final : public LaneLinkHandler {
 public:
  ShardReplication(ShardReplicationOptions options,
                   ShardReplicationDependencies dependencies,
                   Log log);
  ~ShardReplication() override;

  // From now on the shard takes part; it outlives this object.
  void Add(ShardSlot& shard) { shards_[shard.id] = &shard; }
  void SetServers(const std::vector<ServerEndpoint>& servers);
  Promise Install(ShardSlot& shard, const ReplicaSet& entry, ShardMember::Via via);
  static Promise PromiseOf(const ShardSlot& shard);
  void BeginHandover(ShardSlot& shard, const Handover& message);
  // Streams that were given up because of a proposed view begin anew.
  void OnViewChanged();

  // Sends the chunk's next log entry to the other members; reigns() must hold.
  void Append(ShardSlot& shard, const ChunkSlot& chunk, NewEntry entry);

  void Adopt(const Hello& hello, std::unique_ptr<Channel> channel);
  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_copied() const { return bytes_copied_; }  // received

  // Frames of other members; called by PeerConnection.
  void OnPeerFrame(PeerConnection& peer, const ReceivedFrame& frame);
  void OnPeerClosed(PeerConnection& peer);

  // Frames of primaries.
  void OnLinkUp(LaneLink& link) override;
  void OnLinkRefused(LaneLink& link, const absl::Status& why) override;
  void OnLinkWaiting(LaneLink& link, const absl::Status& why, Duration lasted) override;
  std::span<std::byte> PayloadBuffer(LaneLink& link, const FrameHeader& header) override;
  void OnFrame(LaneLink& link, const ReceivedFrame& frame) override;

 private:
  void OnJoin(PeerConnection& peer, const ReceivedFrame& frame);
  void OnAck(PeerConnection& peer, const ReceivedFrame& frame);
  void SendNext(ShardSlot& shard, ServerId member);
  void SendCopy(ShardSlot& shard, PeerConnection& peer, const ShardMember::StreamFrame& next);
  void SendStream(ShardSlot& shard,
                  PeerConnection& peer,
                  FrameType type,
                  const StreamMeta& meta,
                  const ChunkSlot* chunk,
                  Payload payload);
  void FinishHandover(ShardSlot& shard);

  void Join(ShardSlot& shard);
  LaneLink* LinkTo(ServerId server, ShardId shard);
  void CheckJoins();
  bool LacksJoiner(const StreamMeta& meta, Step step) const;
  bool TakeEntry(ShardSlot& shard,
                 const StreamMeta& meta,
                 const FrameHeader& header,
                 HostBuffer payload);
  // True when the last part is there and the chunk has it.
  bool TakeCopyPart(ShardSlot& shard,
                    const StreamMeta& meta,
                    const FrameHeader& header,
                    HostBuffer payload);
  void Follow(ShardSlot& shard, const ShardMember::Change& change);
  static void ClearState(ShardSlot& shard);
  void KeepConnections(ShardSlot& shard);
  void AnswerLate(ShardSlot& shard, const StreamAck& ack);
  void LookAgainLater();
  void Answer(LaneLink& link, ShardSlot& shard, Epoch epoch, const StreamAck& ack);
  ShardSlot* Find(ShardId shard);

  const ShardReplicationOptions options_;
  const ShardReplicationDependencies dependencies_;
  const Log log_;
  std::map<ShardId, ShardSlot*> shards_;
  std::map<ServerId, ServerEndpoint> servers_;
  std::map<const LaneLink*, HostBuffer> arriving_;  // payload of the frame under way on each link
  uint64_t bytes_sent_ = 0;
  uint64_t bytes_copied_ = 0;
  Executor::TimerId timer_ = 0;
  std::map<const PeerConnection*, std::unique_ptr<PeerConnection>> peers_;
  std::map<std::pair<ServerId, size_t>, std::unique_ptr<LaneLink>>
      links_;  // by server and its lane
};

}  // namespace pushpull
