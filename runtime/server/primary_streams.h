// SPDX-License-Identifier: Apache-2.0
//
// The primary's side of replication: connections of other members to this lane, and the stream of
// copies and log entries to each (docs/protocol.md sections 3 to 5). What is sent when is decided
// in replication/shard_member.h.
#pragma once

#include <map>
#include <memory>

#include "absl/container/flat_hash_map.h"

#include "runtime/replication/replica_frame.h"
#include "runtime/server/replication_host.h"

namespace pushpull {

class PrimaryStreams;

// Another server's connection to this lane. Thread-confined to the lane.
class PeerConnection final : public FrameHandler {
 public:
  PeerConnection(PrimaryStreams& streams, const Hello& hello, std::unique_ptr<Channel> channel);

  std::span<std::byte> PayloadBuffer(Channel& channel, const FrameHeader& header) override;
  void OnFrame(Channel& channel, const ReceivedFrame& frame) override;
  void OnPayloadLost(Channel&, const FrameHeader&) override {}
  void OnClosed(Channel& channel, const absl::Status& why) override;

  ServerId server() const { return server_; }
  Channel& channel() { return *channel_; }

 private:
  PrimaryStreams& streams_;
  const ServerId server_;
  HostBuffer stamps_;
  std::unique_ptr<Channel> channel_;  // last: it may still call while it is destroyed
};

// What the streams ask of the rest of replication.
class PrimaryStreamsHost {
 public:
  virtual ~PrimaryStreamsHost() = default;
  // A primary that hands over has sent everything, and this entry that makes this server primary.
  // False: the entry is refused.
  virtual bool TakeHandover(Shard& shard, const ReplicaSet& entry) = 0;
  // A member has acknowledged entries.
  virtual void OnAcknowledged(Shard& shard) = 0;
};

// Thread-confined to the lane.
class PrimaryStreams {
 public:
  PrimaryStreams(ServerId self,
                 const ReplicationDependencies& dependencies,
                 PrimaryStreamsHost& host,
                 Log log)
      : self_(self), dependencies_(dependencies), host_(host), log_(std::move(log)) {}

  // Takes a connection that another member has opened.
  void Adopt(const Hello& hello, std::unique_ptr<Channel> channel);

  // Sends the chunk's next log entry to the other members; this server must be primary.
  void Append(Chunk& chunk, LogEntry entry);
  // An entry is in force: streams of servers that are not members any more end, the others are
  // confirmed under it.
  void OnEntry(Shard& shard);

  uint64_t bytes_sent() const { return bytes_sent_; }

  // Called by PeerConnection.
  void OnFrame(PeerConnection& peer, const ReceivedFrame& frame);
  void OnClosed(PeerConnection& peer);

 private:
  // The connection on which each member has joined a shard.
  using Joined = std::map<ServerId, PeerConnection*>;

  void OnJoin(PeerConnection& peer, const ReceivedFrame& frame);
  void OnAck(PeerConnection& peer, const ReceivedFrame& frame);
  PeerConnection* FindJoined(ShardId shard, ServerId member) const;
  void SendNext(Shard& shard, ServerId member);
  void SendCopy(const Shard& shard, PeerConnection& peer, const OutgoingStreams::Frame& next);
  void Send(PeerConnection& peer, FrameHeader header, const StreamMeta& meta, Payload payload);

  const ServerId self_;
  const ReplicationDependencies& dependencies_;
  PrimaryStreamsHost& host_;
  const Log log_;
  absl::flat_hash_map<ShardId, Joined> joined_;
  uint64_t bytes_sent_ = 0;
  std::map<const PeerConnection*, std::unique_ptr<PeerConnection>> peers_;
};

}  // namespace pushpull
