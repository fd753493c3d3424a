// SPDX-License-Identifier: Apache-2.0
//
// The follower's and learner's side of replication: links to primaries, joining their streams, and
// the copies and log entries that arrive (docs/protocol.md sections 3 to 5).
// replication/shard_member.h decides what a frame means.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "runtime/replication/replica_frame.h"
#include "runtime/server/lane_context.h"
#include "runtime/transport/lane_link.h"

namespace pushpull {

// Thread-confined to the lane.
class FollowerStreams final : public LaneLinkHandler {
 public:
  explicit FollowerStreams(const LaneContext& lane) : lane_(lane) {}  // which outlives this object
  ~FollowerStreams() override { lane_.executor.Cancel(timer_); }

  const std::map<ServerId, ServerEndpoint>& servers() const { return servers_; }
  void SetServers(const std::vector<ServerEndpoint>& servers);
  // An entry has come into force. `has_handed_over`: this server has just handed the shard over,
  // and says so when it joins the next primary's stream.
  void OnEntry(Shard& shard, const ShardMember::Change& change, bool has_handed_over);
  // Opens the link to another server before it is needed.
  void Connect(ServerId server, ShardId shard) { LinkTo(server, shard); }
  // Rejoins streams that were given up because of a proposed view.
  void OnViewChanged();

  uint64_t bytes_copied() const { return bytes_copied_; }  // received in copies

  void OnLinkUp(LaneLink& link) override;
  void OnLinkRefused(LaneLink& link, const absl::Status& why) override;
  void OnLinkWaiting(LaneLink& link, const absl::Status& why, Duration lasted) override;
  std::span<std::byte> PayloadBuffer(LaneLink& link, const FrameHeader& header) override;
  void OnFrame(LaneLink& link, const ReceivedFrame& frame) override;

 private:
  // A copy of a chunk that is arriving in parts.
  struct Copy {
    uint32_t next_part = 0;
    ChunkSnapshot snapshot;
    size_t state_bytes = 0;  // of the optimizer's state, received so far
  };
  // A shard's stream from its primary.
  struct Incoming {
    Copy copy;
    SteadyTime heard_at;           // from the primary; or when it was last asked
    bool has_handed_over = false;  // this server was primary, and its successor may not know yet
  };

  // A frame of a shard's stream.
  struct Arrived {
    Shard& shard;
    Chunk* chunk;  // null if the shard has no such chunk, or the frame names none
    const StreamMeta& meta;
    const FrameHeader& header;
    HostBuffer& payload;
  };

  void Join(Shard& shard);
  LaneLink* LinkTo(ServerId server, ShardId shard);
  void CheckJoins();
  void CheckJoinsLater();
  bool LacksJoiner(const StreamMeta& meta, Step step) const;
  // True if the chunk has taken it.
  bool TakeEntry(const Arrived& entry);
  // True once the last part has arrived and the chunk has been replaced.
  bool TakeCopyPart(const Arrived& part);
  absl::Status AddPart(const Arrived& part, Copy& copy);
  absl::Status InstallCopy(const Arrived& last, Copy copy);
  void Dispatch(LaneLink& link, const Arrived& frame);
  static void Answer(LaneLink& link, const Shard& shard, Epoch epoch, const StreamAck& ack);

  const LaneContext& lane_;
  std::map<ServerId, ServerEndpoint> servers_;
  absl::flat_hash_map<ShardId, Incoming> incoming_;
  std::map<const LaneLink*, HostBuffer> payloads_;  // of the frame being received on each link
  uint64_t bytes_copied_ = 0;
  Executor::TimerId timer_ = 0;
  std::map<std::pair<ServerId, size_t>, std::unique_ptr<LaneLink>>
      links_;  // by server and its lane
};

}  // namespace pushpull
