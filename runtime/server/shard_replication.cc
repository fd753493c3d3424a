// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/shard_replication.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"

#include "runtime/server/step_engine.h"

namespace pushpull {
namespace {

// The value, the optimizer state in parts that fit a frame's payload, and the clocks.
size_t NumParts(size_t state_bytes) {
  return 2 + (state_bytes + kFramePayloadBytesMax - 1) / kFramePayloadBytesMax;
}

}  // namespace

PeerConnection::PeerConnection(ShardReplication& replication,
                               uint64_t number,
                               const Hello& hello,
                               std::unique_ptr<Channel> channel)
    : replication_(replication),
      number_(number),
      server_(hello.server.value_or(ServerId{})),
      channel_(std::move(channel)) {}

std::span<std::byte> PeerConnection::PayloadBuffer(Channel&, const FrameHeader& header) {
  stamps_ = HostBuffer();
  if (header.type != FrameType::kJoinShard || !replication_.Knows(server_)) return {};
  absl::StatusOr<HostBuffer> buffer = HostBuffer::Uninitialized(header.payload_bytes);
  if (buffer.ok()) stamps_ = *std::move(buffer);
  return stamps_.bytes();
}

void PeerConnection::OnFrame(Channel&, const ReceivedFrame& frame) {
  replication_.OnFrame(*this, frame);
}

void PeerConnection::OnClosed(Channel&, const absl::Status&) {
  replication_.OnClosed(*this);
}

// ---- entries ----

void ShardReplication::Install(Shard& shard, const ReplicaSet& entry, ShardMember::Via via) {
  const ShardMember::Change change = shard.member().Install(entry, via);
  if (change.is_taken) Follow(shard, change, false);
}

// An entry has come into force. Requests are redirected before the state is cleared, and a new
// primary publishes before it sends to others: both see the state that the previous entry left.
void ShardReplication::Follow(Shard& shard,
                              const ShardMember::Change& change,
                              bool has_handed_over) {
  const ShardMember& member = shard.member();
  if (change.is_demoted) engine_.OnDemoted(shard);
  if (member.role() == ReplicaRole::kNone)
    for (const std::unique_ptr<Chunk>& chunk : shard.chunks()) chunk->Clear();
  incoming_.OnEntry(shard, change, has_handed_over);
  if (member.is_primary()) engine_.OnPublishable(shard);
  ConfirmStreams(shard);
}

// The old primary takes no pushes from now on; those that arrive wait. Once the next primary has
// acknowledged everything, the entry that makes it primary is installed here first, so that nothing
// more of this log can be published.
void ShardReplication::BeginHandover(Shard& shard, const Handover& message) {
  if (!shard.member().BeginHandover(message.current, message.next)) return;
  incoming_.Connect(*message.next.primary, shard.id());  // connecting takes time
  FinishHandover(shard);
}

void ShardReplication::FinishHandover(Shard& shard) {
  const std::optional<ReplicaSet> due = shard.member().HandoverDue();
  if (!due) return;
  Follow(shard, shard.member().Install(*due, ShardMember::Via::kCoordinator), true);
}

// ---- streams to the other members ----

void ShardReplication::Adopt(const Hello& hello, std::unique_ptr<Channel> channel) {
  auto peer = std::make_unique<PeerConnection>(*this, num_adopted_++, hello, std::move(channel));
  PeerConnection& adopted = *peer;
  peers_.emplace(&adopted, std::move(peer));
  adopted.channel().Start(adopted);
  DropOldestStranger();
}

void ShardReplication::DropOldestStranger() {
  if (peers_.size() <= kStrangersMax + 2 * incoming_.servers().size()) return;
  PeerConnection* oldest = nullptr;
  for (const auto& [key, peer] : peers_) {
    if (Knows(peer->server())) continue;
    if (oldest == nullptr || peer->number() < oldest->number()) oldest = peer.get();
  }
  if (oldest == nullptr) return;
  lane_.metrics.AddError(ServerError::kRejected);
  OnClosed(*oldest);
}

void ShardReplication::OnClosed(PeerConnection& peer) {
  for (auto& [id, joined] : joined_) {
    const auto it = joined.find(peer.server());
    if (it == joined.end() || it->second != &peer) continue;
    joined.erase(it);
    lane_.shards.Find(id)->member().outgoing().Close(peer.server());
  }
  const auto it = peers_.find(&peer);
  if (it == peers_.end()) return;
  peer.channel().Close();
  // Its own callback may be on the stack: it is destroyed after that has returned.
  lane_.executor.Post([doomed = std::shared_ptr<PeerConnection>(std::move(it->second))] {});
  peers_.erase(it);
}

void ShardReplication::OnFrame(PeerConnection& peer, const ReceivedFrame& frame) {
  switch (frame.header.type) {
    case FrameType::kJoinShard:
      return OnJoin(peer, frame);
    case FrameType::kReplicateAck:
      return OnAck(peer, frame);
    default:
      lane_.metrics.AddError(ServerError::kBadFrame);
      lane_.log.Warning(
          "connection closed: protocol violation",
          {{"server", ToString(peer.server())}, {"frame", static_cast<int>(frame.header.type)}});
      OnClosed(peer);
  }
}

void ShardReplication::OnJoin(PeerConnection& peer, const ReceivedFrame& frame) {
  // The payload was dropped, out of memory or before the list of servers arrived: the peer asks
  // again.
  if (frame.payload.size() != frame.header.payload_bytes) return;
  const absl::StatusOr<JoinShardMeta> join = DecodeJoinShard(frame.meta);
  const absl::StatusOr<std::vector<ChunkStamp>> theirs = DecodeStamps(frame.payload);
  if (!join.ok() || !theirs.ok()) return OnClosed(peer);
  Shard* shard = lane_.shards.Find(join->shard);
  if (shard == nullptr) return;  // the peer asks again; the entry is on its way here
  if (join->is_handover && !TakeHandover(*shard, peer, *join)) return;
  // A member under another entry is not answered: it asks again, once either side has learned the
  // newer entry.
  const bool is_opened = shard->member().Open(
      peer.server(), frame.header.epoch, join->stream, *theirs, shard->Stamps());
  if (!is_opened) return;
  joined_[shard->id()][peer.server()] = &peer;
  SendNext(*shard, peer.server());
}

// A primary that has handed over joins the next one's stream, and may do so before the
// coordinator's entry arrives here. Its join suffices if this server has every entry of its log.
// False: the entry is refused.
bool ShardReplication::TakeHandover(Shard& shard,
                                    const PeerConnection& peer,
                                    const JoinShardMeta& join) {
  const ShardMember& member = shard.member();
  const bool hands_over = member.is_full() && member.seq() == join.seq &&
                          member.entry().primary == peer.server() &&
                          join.entry.RoleOf(lane_.server) == ReplicaRole::kPrimary;
  if (!hands_over || join.entry.epoch <= member.entry().epoch) return true;
  Install(shard, join.entry, ShardMember::Via::kHandedOver);
  // Refused: the entry is from a coordinator that was replaced.
  if (member.entry() != join.entry) return false;
  lane_.notify(HandedOver{shard.id(), join.entry});
  return true;
}

void ShardReplication::OnAck(PeerConnection& peer, const ReceivedFrame& frame) {
  const absl::StatusOr<ReplicateAckMeta> meta = DecodeReplicateAck(frame.meta);
  if (!meta.ok()) return OnClosed(peer);
  Shard* shard = lane_.shards.Find(meta->shard);
  if (shard == nullptr || !shard->member().OnAck(peer.server(), meta->ack)) return;
  if (meta->ack.is_caught_up)
    lane_.notify(CaughtUp{meta->shard, frame.header.epoch, peer.server()});
  // The next copies first, so that the link stays busy; then the answers to workers.
  SendNext(*shard, peer.server());
  engine_.OnPublishable(*shard);
  FinishHandover(*shard);
}

// An entry has come into force: streams to servers that are no longer members end. One that
// continues is confirmed under the new entry by another caught-up frame, which NextFrames has
// ready.
void ShardReplication::ConfirmStreams(Shard& shard) {
  const std::vector<ServerId> streams = shard.member().outgoing().Members();
  const auto joined = joined_.find(shard.id());
  if (joined != joined_.end()) {
    std::erase_if(joined->second, [&](const auto& of_member) {
      return !absl::c_linear_search(streams, of_member.first);
    });
  }
  for (const ServerId member : streams) SendNext(shard, member);
}

PeerConnection* ShardReplication::FindJoined(ShardId shard, ServerId member) const {
  const auto joined = joined_.find(shard);
  if (joined == joined_.end()) return nullptr;
  const auto peer = joined->second.find(member);
  return peer == joined->second.end() ? nullptr : peer->second;
}

// A member that has yet to receive a copy of the chunk is not sent the entry: the copy is made when
// its turn comes, and includes the entry.
void ShardReplication::Append(Chunk& chunk, LogEntry entry) {
  Shard& shard = chunk.shard();
  entry.meta.shard = shard.id();
  entry.meta.seq = shard.member().Append(chunk.index_in_shard());
  for (const ServerId member : shard.member().outgoing().Members()) {
    PeerConnection* peer = FindJoined(shard.id(), member);
    const std::optional<StreamPosition> at =
        shard.member().outgoing().PlaceEntry(member, chunk.index_in_shard());
    if (!at || peer == nullptr) continue;
    entry.meta.at = *at;
    Send(*peer,
         {.type = FrameType::kReplicate,
          .epoch = shard.member().entry().epoch,
          .chunk = chunk.id(),
          .step = entry.step,
          .learning_rate = entry.learning_rate},
         entry.meta,
         entry.payload);
  }
}

void ShardReplication::SendNext(Shard& shard, ServerId member) {
  PeerConnection* peer = FindJoined(shard.id(), member);
  if (peer == nullptr) return;
  for (const OutgoingStreams::Frame& next : shard.member().outgoing().NextFrames(member)) {
    if (next.kind == OutgoingStreams::Frame::Kind::kCopy) {
      SendCopy(shard, *peer, next);
      continue;
    }
    const bool is_start = next.kind == OutgoingStreams::Frame::Kind::kStart;
    Send(*peer,
         {.type = is_start ? FrameType::kStreamStart : FrameType::kCaughtUp,
          .epoch = shard.member().entry().epoch},
         {.shard = shard.id(), .at = next.at, .seq = shard.member().seq()},
         {});
  }
}

void ShardReplication::SendCopy(const Shard& shard,
                                PeerConnection& peer,
                                const OutgoingStreams::Frame& next) {
  const Chunk& chunk = *shard.chunks()[next.chunk];
  // References to one version: while they are being sent, later steps are applied beside them, and
  // follow as entries.
  const absl::StatusOr<ChunkImage> image = chunk.state().Image();
  if (!image.ok()) return lane_.notify(Failure{image.status()});
  const auto& [value, state] = *image;
  const FrameHeader header{.type = FrameType::kCopyChunk,
                           .epoch = shard.member().entry().epoch,
                           .chunk = chunk.id(),
                           .step = chunk.state().version()};
  StreamMeta meta{.shard = shard.id(),
                  .at = next.at,
                  .seq = shard.member().seq(),
                  .updates = chunk.state().updates(),
                  .chunk_epoch = shard.member().chunk_epoch(next.chunk),
                  .digest = chunk.made_by().contributors,
                  .clip_scale = chunk.made_by().clip_scale,
                  .has_gradient = chunk.made_by().has_gradient};
  if (const Admission* admission = chunk.admission()) meta.contributors = admission->workers;
  // A chunk without a value is copied too: the member may have a value that never counted.
  if (value == nullptr) return Send(peer, header, meta, {});
  meta.parts = static_cast<uint32_t>(NumParts(state->num_bytes()));
  Send(peer, header, meta, {value->bytes(), value});
  for (meta.part = 1; meta.part + 1 < meta.parts; ++meta.part) {
    const size_t offset = (meta.part - 1) * kFramePayloadBytesMax;
    const size_t count = std::min(kFramePayloadBytesMax, state->num_bytes() - offset);
    Send(peer, header, meta, {state->bytes().subspan(offset, count), state});
  }
  const auto clocks =
      std::make_shared<const std::vector<std::byte>>(EncodeClocks(chunk.clocks().entries()));
  Send(peer, header, meta, {*clocks, clocks});
}

void ShardReplication::Send(PeerConnection& peer,
                            FrameHeader header,
                            const StreamMeta& meta,
                            Payload payload) {
  header.priority = kReplicationPriority;
  bytes_sent_ += payload.bytes.size();
  lane_.metrics.AddReplicated(peer.channel().kind(), payload.bytes.size());
  peer.channel().Send(
      {.header = header, .meta = EncodeStreamMeta(meta), .payload = std::move(payload)});
}

}  // namespace pushpull
