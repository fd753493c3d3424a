// SPDX-License-Identifier: Apache-2.0
//
// Keeps the members of this lane's shards in agreement: carries out entries that come into force
// and handovers that are due, and has the primary's side of replication: other members' connections
// to this lane, and the stream of copies and log entries to each (docs/protocol.md sections 3 to
// 5). replication/shard_member.h decides what is sent and when. Incoming streams are in
// follower_streams.h.
#pragma once

#include <map>
#include <memory>

#include "absl/container/flat_hash_map.h"

#include "runtime/replication/replica_frame.h"
#include "runtime/server/follower_streams.h"
#include "runtime/server/lane_context.h"

namespace pushpull {

class ShardReplication;
class StepEngine;

// Another server's connection to this lane. Thread-confined to the lane.
class PeerConnection final : public FrameHandler {
 public:
  // `number` rises with every connection of the lane.
  PeerConnection(ShardReplication& replication,
                 uint64_t number,
                 const Hello& hello,
                 std::unique_ptr<Channel> channel);

  std::span<std::byte> PayloadBuffer(Channel& channel, const FrameHeader& header) override;
  void OnFrame(Channel& channel, const ReceivedFrame& frame) override;
  void OnPayloadLost(Channel&, const FrameHeader&) override {}
  void OnClosed(Channel& channel, const absl::Status& why) override;

  uint64_t number() const { return number_; }
  ServerId server() const { return server_; }
  Channel& channel() { return *channel_; }

 private:
  ShardReplication& replication_;
  const uint64_t number_;
  const ServerId server_;
  HostBuffer stamps_;
  std::unique_ptr<Channel> channel_;  // last: it may still call while it is destroyed
};

// Thread-confined to the lane.
class ShardReplication {
 public:
  // Both outlive this object. Requests of `engine` wait for replication.
  ShardReplication(const LaneContext& lane, StepEngine& engine)
      : lane_(lane), engine_(engine), incoming_(lane) {}

  // Takes the entry if it is newer, and acts on it.
  void Install(Shard& shard, const ReplicaSet& entry, ShardMember::Via via);
  void BeginHandover(Shard& shard, const Handover& message);

  // Takes a connection that another member has opened.
  void Adopt(const Hello& hello, std::unique_ptr<Channel> channel);
  // Sends the chunk's next log entry to the other members; this server must be primary.
  void Append(Chunk& chunk, LogEntry entry);

  uint64_t bytes_sent() const { return bytes_sent_; }
  FollowerStreams& incoming() { return incoming_; }
  const FollowerStreams& incoming() const { return incoming_; }

  // Called by PeerConnection.
  bool Knows(ServerId server) const { return incoming_.servers().contains(server); }
  void OnFrame(PeerConnection& peer, const ReceivedFrame& frame);
  void OnClosed(PeerConnection& peer);

 private:
  // The connection on which each member has joined a shard.
  using Joined = std::map<ServerId, PeerConnection*>;

  void DropOldestStranger();
  void Follow(Shard& shard, const ShardMember::Change& change, bool has_handed_over);
  void FinishHandover(Shard& shard);
  bool TakeHandover(Shard& shard, const PeerConnection& peer, const JoinShardMeta& join);
  void OnJoin(PeerConnection& peer, const ReceivedFrame& frame);
  void OnAck(PeerConnection& peer, const ReceivedFrame& frame);
  void ConfirmStreams(Shard& shard);
  PeerConnection* FindJoined(ShardId shard, ServerId member) const;
  void SendNext(Shard& shard, ServerId member);
  void SendCopy(const Shard& shard, PeerConnection& peer, const OutgoingStreams::Frame& next);
  void Send(PeerConnection& peer, FrameHeader header, const StreamMeta& meta, Payload payload);

  const LaneContext& lane_;
  StepEngine& engine_;
  FollowerStreams incoming_;
  absl::flat_hash_map<ShardId, Joined> joined_;
  uint64_t bytes_sent_ = 0;
  std::map<const PeerConnection*, std::unique_ptr<PeerConnection>> peers_;
  uint64_t num_adopted_ = 0;
};

}  // namespace pushpull
