// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/shard_replication.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "runtime/server/chunk_slot.h"
#include "runtime/transport/lane.h"

namespace pushpull {
namespace {

// All frames of replication go in the order in which they are sent.
constexpr uint8_t kReplicaPriority = 0;

// Times ask_again_after.
constexpr int kPatienceOnceStarted = 20;

// Value, optimizer state, clocks.
size_t NumParts(size_t state_bytes) {
  return 2 + (state_bytes + kFramePayloadBytesMax - 1) / kFramePayloadBytesMax;
}

bool IsInPart(const ShardMember& member) {
  const ReplicaRole role = member.role();
  return (role == ReplicaRole::kFollower || role == ReplicaRole::kLearner) &&
         member.entry().primary.has_value();
}

size_t IndexOf(const ShardSlot& shard, ChunkId chunk) {
  const auto at = std::lower_bound(
      shard.chunks.begin(), shard.chunks.end(), chunk, [](const ChunkSlot* slot, ChunkId id) {
        return slot->id() < id;
      });
  const bool is_here = at != shard.chunks.end() && (*at)->id() == chunk;
  return is_here ? static_cast<size_t>(at - shard.chunks.begin()) : shard.chunks.size();
}

}  // namespace

std::vector<ChunkStamp> ShardSlot::Stamps() const {
  std::vector<ChunkStamp> stamps;
  stamps.reserve(chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i)
    stamps.push_back({chunks[i]->state.version(), member.chunk_epoch(i)});
  return stamps;
}

// ---- connections of other members ----

PeerConnection::PeerConnection(ShardReplication& replication,
                               const Hello& hello,
                               std::unique_ptr<Channel> channel)
    : replication_(replication),
      server_(hello.server.value_or(ServerId{})),
      channel_(std::move(channel)) {}

std::span<std::byte> PeerConnection::PayloadBuffer(Channel&, const FrameHeader& header) {
  stamps_ = HostBuffer();
  if (header.type != FrameType::kJoinShard) return {};
  absl::StatusOr<HostBuffer> buffer = HostBuffer::Uninitialized(header.payload_bytes);
  if (buffer.ok()) stamps_ = *std::move(buffer);
  return stamps_.bytes();
}

void PeerConnection::OnFrame(Channel&, const ReceivedFrame& frame) {
  replication_.OnPeerFrame(*this, frame);
}

void PeerConnection::OnClosed(Channel&, const absl::Status&) {
  replication_.OnPeerClosed(*this);
}

ShardReplication::ShardReplication(ShardReplicationOptions options,
                                   ShardReplicationDependencies dependencies,
                                   Log log)
    : options_(std::move(options)), dependencies_(dependencies), log_(std::move(log)) {}

ShardReplication::~ShardReplication() {
  dependencies_.executor.Cancel(timer_);
}

void ShardReplication::Adopt(const Hello& hello, std::unique_ptr<Channel> channel) {
  auto peer = std::make_unique<PeerConnection>(*this, hello, std::move(channel));
  PeerConnection& adopted = *peer;
  peers_.emplace(&adopted, std::move(peer));
  adopted.channel().Start(adopted);
}

void ShardReplication::OnPeerClosed(PeerConnection& peer) {
  for (const auto& [id, shard] : shards_) {
    const auto joined = shard->joined.find(peer.server());
    if (joined == shard->joined.end() || joined->second != &peer) continue;
    shard->joined.erase(joined);
    shard->member.Close(peer.server());
  }
  const auto it = peers_.find(&peer);
  if (it == peers_.end()) return;
  peer.channel().Close();
  // It may be its own callback that ends it: it goes when that has returned.
  dependencies_.executor.Post([doomed = std::shared_ptr<PeerConnection>(std::move(it->second))] {});
  peers_.erase(it);
}

// ---- what the coordinator decides ----

void ShardReplication::SetServers(const std::vector<ServerEndpoint>& servers) {
  std::map<ServerId, ServerEndpoint> now;
  for (const ServerEndpoint& server : servers) now[server.server] = server;
  std::erase_if(links_, [&](const auto& link) {
    const auto known = now.find(link.first.first);
    const bool is_same = known != now.end() && known->second.data_address == link.second->address();
    if (!is_same) arriving_.erase(link.second.get());
    return !is_same;
  });
  servers_ = std::move(now);
  CheckJoins();
}

Promise ShardReplication::Install(ShardSlot& shard, const ReplicaSet& entry, ShardMember::Via via) {
  const ShardMember::Change change = shard.member.Install(entry, via);
  if (change.is_taken) {
    shard.has_handed_over = false;
    Follow(shard, change);
  }
  return PromiseOf(shard);
}

Promise ShardReplication::PromiseOf(const ShardSlot& shard) {
  return {.shard = shard.id,
          .entry = shard.member.entry(),
          .seq = shard.member.seq(),
          .is_full = shard.member.is_full()};
}

// An entry is in force.
void ShardReplication::Follow(ShardSlot& shard, const ShardMember::Change& change) {
  const ShardMember& member = shard.member;
  if (!member.is_joined()) shard.copy = CopyUnderWay{};
  KeepConnections(shard);
  if (change.late_answer) AnswerLate(shard, *change.late_answer);
  if (change.has_ended) dependencies_.host.OnReignEnded(shard);
  if (member.role() == ReplicaRole::kNone) ClearState(shard);
  if (change.must_join) Join(shard);
  if (member.reigns()) dependencies_.host.OnPublishable(shard);
  // Whose stream goes on is confirmed under this entry.
  for (const ServerId other : member.Streams()) SendNext(shard, other);
  if (IsInPart(member)) LookAgainLater();
}

void ShardReplication::ClearState(ShardSlot& shard) {
  for (ChunkSlot* chunk : shard.chunks) chunk->ClearState();
}

// Those whose members have a stream.
void ShardReplication::KeepConnections(ShardSlot& shard) {
  const std::vector<ServerId> streams = shard.member.Streams();
  std::erase_if(shard.joined, [&](const auto& joined) {
    return std::find(streams.begin(), streams.end(), joined.first) == streams.end();
  });
}

void ShardReplication::AnswerLate(ShardSlot& shard, const StreamAck& ack) {
  LaneLink* link = LinkTo(*shard.member.entry().primary, shard.id);
  if (link != nullptr) Answer(*link, shard, shard.member.entry().epoch, ack);
}

void ShardReplication::BeginHandover(ShardSlot& shard, const Handover& message) {
  if (!shard.member.BeginHandover(message.current, message.next)) return;
  LinkTo(*message.next.primary, shard.id);  // it takes a moment to connect
  FinishHandover(shard);
}

void ShardReplication::FinishHandover(ShardSlot& shard) {
  const std::optional<ReplicaSet> due = shard.member.HandoverDue();
  if (!due) return;
  shard.has_handed_over = true;
  Follow(shard, shard.member.Install(*due, ShardMember::Via::kCoordinator));
}

void ShardReplication::OnViewChanged() {
  for (const auto& [id, shard] : shards_) {
    if (IsInPart(shard->member) && !shard->member.is_joined()) Join(*shard);
  }
}

// ---- the primary's part ----

void ShardReplication::OnPeerFrame(PeerConnection& peer, const ReceivedFrame& frame) {
  switch (frame.header.type) {
    case FrameType::kJoinShard:
      return OnJoin(peer, frame);
    case FrameType::kReplicateAck:
      return OnAck(peer, frame);
    default:
      dependencies_.metrics.AddError(ServerError::kBadFrame);
      log_.Warning(
          "connection closed: protocol violation",
          {{"server", ToString(peer.server())}, {"frame", static_cast<int>(frame.header.type)}});
      OnPeerClosed(peer);
  }
}

void ShardReplication::OnJoin(PeerConnection& peer, const ReceivedFrame& frame) {
  const absl::StatusOr<JoinShardMeta> join = DecodeJoinShard(frame.meta);
  const absl::StatusOr<std::vector<ChunkStamp>> theirs = DecodeStamps(frame.payload);
  if (!join.ok() || !theirs.ok()) return OnPeerClosed(peer);
  ShardSlot* shard = Find(join->shard);
  if (shard == nullptr) return;  // it asks again; the entry is on its way here
  ShardMember& member = shard->member;
  const bool is_for_us = join->is_handover && member.is_full() && member.seq() == join->seq &&
                         member.entry().primary == peer.server() &&
                         join->entry.RoleOf(options_.server) == ReplicaRole::kPrimary;
  if (is_for_us && join->entry.epoch > member.entry().epoch) {
    Install(*shard, join->entry, ShardMember::Via::kHandedOver);
    if (member.entry() != join->entry) return;  // of a coordinator that has no say any more
    dependencies_.host.TellCoordinator(HandedOver{join->shard, join->entry});
  }
  if (!member.Open(peer.server(), frame.header.epoch, join->stream, *theirs, shard->Stamps()))
    return;
  shard->joined[peer.server()] = &peer;
  SendNext(*shard, peer.server());
}

void ShardReplication::OnAck(PeerConnection& peer, const ReceivedFrame& frame) {
  const absl::StatusOr<ReplicateAckMeta> meta = DecodeReplicateAck(frame.meta);
  if (!meta.ok()) return OnPeerClosed(peer);
  ShardSlot* shard = Find(meta->shard);
  if (shard == nullptr || !shard->member.OnAck(peer.server(), meta->ack)) return;
  if (meta->ack.is_caught_up) {
    dependencies_.host.TellCoordinator(
        MemberCaughtUp{meta->shard, frame.header.epoch, peer.server()});
  }
  SendNext(*shard, peer.server());
  dependencies_.host.OnPublishable(*shard);
  FinishHandover(*shard);
}

void ShardReplication::Append(ShardSlot& shard, const ChunkSlot& chunk, NewEntry entry) {
  const size_t index = IndexOf(shard, chunk.id());
  StreamMeta meta{.shard = shard.id,
                  .at = {},
                  .seq = shard.member.Append(index),
                  .kind = entry.kind,
                  .gradient_scale = entry.gradient_scale,
                  .contributors = std::move(entry.contributors),
                  .update = entry.update,
                  .advance_to = entry.advance_to,
                  .chunk_epoch = {},
                  .digest = entry.digest};
  for (const ServerId member : shard.member.Streams()) {
    const auto joined = shard.joined.find(member);
    const std::optional<StreamPosition> at = shard.member.PlaceEntry(member, index);
    if (!at || joined == shard.joined.end()) continue;
    meta.at = *at;
    PeerConnection& peer = *joined->second;
    OutgoingFrame frame{.header = {.type = FrameType::kReplicate,
                                   .priority = kReplicaPriority,
                                   .epoch = shard.member.entry().epoch,
                                   .chunk = chunk.id(),
                                   .step = entry.step,
                                   .learning_rate = entry.learning_rate},
                        .meta = EncodeStreamMeta(meta),
                        .payload = entry.payload};
    bytes_sent_ += entry.payload.bytes.size();
    dependencies_.metrics.AddReplicated(peer.channel().kind(), entry.payload.bytes.size());
    peer.channel().Send(std::move(frame));
  }
}

void ShardReplication::SendNext(ShardSlot& shard, ServerId member) {
  const auto joined = shard.joined.find(member);
  if (joined == shard.joined.end()) return;
  PeerConnection& peer = *joined->second;
  for (const ShardMember::StreamFrame& next : shard.member.NextFrames(member)) {
    if (next.kind == ShardMember::StreamFrame::Kind::kCopy) {
      SendCopy(shard, peer, next);
      continue;
    }
    const bool is_start = next.kind == ShardMember::StreamFrame::Kind::kStart;
    SendStream(shard,
               peer,
               is_start ? FrameType::kStreamStart : FrameType::kCaughtUp,
               {.shard = shard.id, .at = next.at, .seq = shard.member.seq(), .chunk_epoch = {}},
               nullptr,
               {});
  }
}

void ShardReplication::SendCopy(ShardSlot& shard,
                                PeerConnection& peer,
                                const ShardMember::StreamFrame& next) {
  const ChunkSlot& chunk = *shard.chunks[next.chunk];
  const std::shared_ptr<const HostBuffer> value = chunk.state.value();
  const std::shared_ptr<const HostBuffer> state = chunk.state.optimizer_state();
  StreamMeta meta{.shard = shard.id,
                  .at = next.at,
                  .seq = shard.member.seq(),
                  .contributors = {},
                  .updates = chunk.state.updates(),
                  .chunk_epoch = shard.member.chunk_epoch(next.chunk),
                  .digest = chunk.contributors()};
  const bool has_decided = chunk.is_leading() && chunk.admission &&
                           chunk.admission->step.value() + 1 == chunk.state.version().value();
  if (has_decided) meta.contributors = chunk.admission->workers;
  // A chunk without a value yet is copied as one: the member may have one that never counted.
  if (value == nullptr) return SendStream(shard, peer, FrameType::kCopyChunk, meta, &chunk, {});
  meta.parts = static_cast<uint32_t>(NumParts(state->num_bytes()));
  SendStream(shard, peer, FrameType::kCopyChunk, meta, &chunk, {value->bytes(), value});
  for (meta.part = 1; meta.part + 1 < meta.parts; ++meta.part) {
    const size_t offset = (meta.part - 1) * kFramePayloadBytesMax;
    const size_t count = std::min(kFramePayloadBytesMax, state->num_bytes() - offset);
    SendStream(shard,
               peer,
               FrameType::kCopyChunk,
               meta,
               &chunk,
               {state->bytes().subspan(offset, count), state});
  }
  const auto clocks =
      std::make_shared<const std::vector<std::byte>>(EncodeClocks(chunk.clocks.entries()));
  SendStream(shard, peer, FrameType::kCopyChunk, meta, &chunk, {*clocks, clocks});
}

void ShardReplication::SendStream(ShardSlot& shard,
                                  PeerConnection& peer,
                                  FrameType type,
                                  const StreamMeta& meta,
                                  const ChunkSlot* chunk,
                                  Payload payload) {
  OutgoingFrame frame{
      .header = {.type = type, .priority = kReplicaPriority, .epoch = shard.member.entry().epoch},
      .meta = EncodeStreamMeta(meta),
      .payload = std::move(payload)};
  if (chunk != nullptr) {
    frame.header.chunk = chunk->id();
    frame.header.step = chunk->state.version();
  }
  bytes_sent_ += frame.payload.bytes.size();
  dependencies_.metrics.AddReplicated(peer.channel().kind(), frame.payload.bytes.size());
  peer.channel().Send(std::move(frame));
}

// ---- the other members' part ----

LaneLink* ShardReplication::LinkTo(ServerId server, ShardId shard) {
  const auto endpoint = servers_.find(server);
  if (endpoint == servers_.end()) return nullptr;
  const size_t lane = LaneOf(shard, endpoint->second.lanes);
  auto& link = links_[{server, lane}];
  if (link == nullptr) {
    link = std::make_unique<LaneLink>(dependencies_.transport,
                                      dependencies_.executor,
                                      LaneLinkTarget{.server = server,
                                                     .address = endpoint->second.data_address,
                                                     .hello = {.job = options_.job,
                                                               .worker = {},
                                                               .incarnation = options_.incarnation,
                                                               .lane = static_cast<uint32_t>(lane),
                                                               .server = options_.server},
                                                     .local_lane = options_.lane},
                                      *this);
  }
  return link.get();
}

void ShardReplication::Join(ShardSlot& shard) {
  shard.copy = CopyUnderWay{};
  shard.heard_at = dependencies_.executor.Now();
  const uint64_t stream = shard.member.Join();
  LookAgainLater();
  LaneLink* link = LinkTo(*shard.member.entry().primary, shard.id);
  if (link == nullptr || link->channel() == nullptr) return;  // when the link is up
  const auto stamps = std::make_shared<const std::vector<std::byte>>(EncodeStamps(shard.Stamps()));
  link->channel()->Send({.header = {.type = FrameType::kJoinShard,
                                    .priority = kReplicaPriority,
                                    .epoch = shard.member.entry().epoch},
                         .meta = EncodeJoinShard({.shard = shard.id,
                                                  .stream = stream,
                                                  .is_handover = shard.has_handed_over,
                                                  .entry = shard.member.entry(),
                                                  .seq = shard.member.seq()}),
                         .payload = {*stamps, stamps}});
}

void ShardReplication::LookAgainLater() {
  if (timer_ != 0) return;
  timer_ = dependencies_.executor.RunAfter(options_.ask_again_after, [this] {
    timer_ = 0;
    CheckJoins();
  });
}

// Asks again where a primary has not answered: it may not have the entry yet, or a frame is lost. A
// stream that has started is given more time: a copy may be on its way over a slow link.
void ShardReplication::CheckJoins() {
  const SteadyTime now = dependencies_.executor.Now();
  bool must_look_again = false;
  for (const auto& [id, shard] : shards_) {
    if (!IsInPart(shard->member) || !shard->member.is_joined()) continue;
    LaneLink* link = LinkTo(*shard->member.entry().primary, id);
    const bool may_lose =
        link != nullptr && link->channel() != nullptr && !link->channel()->is_reliable();
    if (shard->member.is_confirmed() && !may_lose) continue;
    must_look_again = true;
    const bool is_slow = shard->member.has_started() && !may_lose;
    const Duration patience = options_.ask_again_after * (is_slow ? kPatienceOnceStarted : 1);
    if (now - shard->heard_at >= patience) Join(*shard);
  }
  if (must_look_again) LookAgainLater();
}

void ShardReplication::OnLinkUp(LaneLink& link) {
  for (const auto& [id, shard] : shards_) {
    if (!IsInPart(shard->member) || shard->member.entry().primary != link.server()) continue;
    if (LinkTo(link.server(), id) == &link) Join(*shard);
  }
}

void ShardReplication::OnLinkRefused(LaneLink& link, const absl::Status& why) {
  log_.Warning("a server refuses replication",
               {{"server", ToString(link.server())}, {"why", why.message()}});
}

void ShardReplication::OnLinkWaiting(LaneLink& link, const absl::Status& why, Duration lasted) {
  log_.Warning("no connection, trying again",
               {{"peer", absl::StrCat(ToString(link.server()), " (", link.address(), ")")},
                {"why", why.message()},
                {"lost_seconds", ToSeconds(lasted)}});
}

std::span<std::byte> ShardReplication::PayloadBuffer(LaneLink& link, const FrameHeader& header) {
  HostBuffer& buffer = arriving_[&link];
  dependencies_.pool.Return(std::move(buffer));
  absl::StatusOr<HostBuffer> fresh = dependencies_.pool.Take(header.payload_bytes);
  if (!fresh.ok()) return {};
  buffer = *std::move(fresh);
  return buffer.bytes();
}

void ShardReplication::OnFrame(LaneLink& link, const ReceivedFrame& frame) {
  HostBuffer payload = std::exchange(arriving_[&link], HostBuffer());
  const absl::StatusOr<StreamMeta> meta = DecodeStreamMeta(frame.meta);
  ShardSlot* shard = meta.ok() ? Find(meta->shard) : nullptr;
  if (shard == nullptr) return;
  ShardMember& member = shard->member;
  const FrameHeader& header = frame.header;
  switch (member.Judge(link.server(), meta->at)) {
    case ShardMember::Verdict::kIgnore:
      return dependencies_.pool.Return(std::move(payload));
    case ShardMember::Verdict::kJoinAgain:
      dependencies_.pool.Return(std::move(payload));
      return Join(*shard);
    case ShardMember::Verdict::kTake:
      break;
  }
  shard->heard_at = dependencies_.executor.Now();
  switch (header.type) {
    case FrameType::kStreamStart:
      shard->has_handed_over = false;
      return Answer(link, *shard, header.epoch, member.TakeStart(meta->seq));
    case FrameType::kCaughtUp:
      if (const auto ack = member.TakeCaughtUp(header.epoch, meta->seq))
        Answer(link, *shard, header.epoch, *ack);
      return;
    case FrameType::kCopyChunk:
      if (!TakeCopyPart(*shard, *meta, header, std::move(payload))) return;
      return Answer(link,
                    *shard,
                    header.epoch,
                    member.TakeCopy(IndexOf(*shard, header.chunk), meta->chunk_epoch));
    case FrameType::kReplicate:
      if (LacksJoiner(*meta, header.step)) return member.Refuse();
      if (!TakeEntry(*shard, *meta, header, std::move(payload))) return Join(*shard);
      return Answer(link,
                    *shard,
                    header.epoch,
                    member.TakeEntry(IndexOf(*shard, header.chunk), header.epoch, meta->seq));
    default:
      return;
  }
}

// An entry that was made without a joiner whose view this server has accepted must not become
// publishable: the joiner would be overtaken.
bool ShardReplication::LacksJoiner(const StreamMeta& meta, Step step) const {
  if (meta.kind == LogEntryKind::kInitialize || meta.kind == LogEntryKind::kAdvance) return false;
  const MembershipView& membership = dependencies_.host.membership();
  if (!membership.proposed() || meta.update) return false;
  // With backup workers steps wait for nobody in particular.
  if (membership.active().consistency.admits()) return false;
  const auto& members = membership.proposed()->members;
  return std::any_of(members.begin(), members.end(), [&](const ViewMember& joiner) {
    const ViewMember* active = membership.active().Find(joiner.worker);
    const bool is_new = active == nullptr || active->incarnation != joiner.incarnation;
    return is_new && joiner.ContributesTo(step) &&
           std::find(meta.contributors.begin(), meta.contributors.end(), joiner.worker) ==
               meta.contributors.end();
  });
}

bool ShardReplication::TakeEntry(ShardSlot& shard,
                                 const StreamMeta& meta,
                                 const FrameHeader& header,
                                 HostBuffer payload) {
  const size_t index = IndexOf(shard, header.chunk);
  if (index == shard.chunks.size()) return false;
  ChunkSlot& chunk = *shard.chunks[index];
  ChunkState& state = chunk.state;
  if (meta.kind == LogEntryKind::kInitialize) {
    return payload.num_bytes() == state.num_bytes() && !state.is_initialized() &&
           state.Install(std::move(payload)).ok();
  }
  if (!state.is_initialized() || state.version() != header.step) return false;
  chunk.DropContributions();  // held for a gated step since this server was the primary
  if (meta.kind == LogEntryKind::kAdvance) {
    if (meta.advance_to <= state.version()) return false;
    state.AdvanceTo(meta.advance_to);
    chunk.admission.reset();
    return true;
  }
  const bool has_payload = meta.kind != LogEntryKind::kSkip;
  if (has_payload && payload.num_bytes() != state.num_bytes()) return false;
  if (meta.update) {
    chunk.clocks.Record(*meta.update);
  } else if (chunk.is_leading()) {
    chunk.admission = Admission{header.step, meta.contributors};
  }
  chunk.counted = {Step{header.step.value() + 1}, meta.digest};
  if (meta.kind == LogEntryKind::kSkip) {
    state.Skip();
    return true;
  }
  if (meta.kind == LogEntryKind::kReplace) {
    state.Replace(std::move(payload));
    return true;
  }
  const absl::Status applied =
      state.Apply(payload.floats(), meta.gradient_scale, header.learning_rate);
  dependencies_.pool.Return(std::move(payload));
  if (!applied.ok()) dependencies_.host.OnInconsistent(applied);
  return applied.ok();
}

bool ShardReplication::TakeCopyPart(ShardSlot& shard,
                                    const StreamMeta& meta,
                                    const FrameHeader& header,
                                    HostBuffer payload) {
  const size_t index = IndexOf(shard, header.chunk);
  CopyUnderWay& copy = shard.copy;
  if (meta.part == 0) copy = CopyUnderWay{};
  if (index == shard.chunks.size() || meta.part != copy.next_part) {
    if (meta.part > copy.next_part) Join(shard);
    return false;
  }
  ++copy.next_part;
  ChunkState& state = shard.chunks[index]->state;
  if (meta.part == 0) {
    copy.value = std::move(payload);
    absl::StatusOr<HostBuffer> memory = HostBuffer::Uninitialized(state.state_bytes());
    if (!memory.ok()) {
      Join(shard);
      return false;
    }
    copy.state = *std::move(memory);
  } else if (meta.part + 1 == meta.parts) {
    absl::StatusOr<std::vector<WorkerClock>> clocks = DecodeClocks(payload.bytes());
    if (!clocks.ok()) return false;
    copy.clocks = *std::move(clocks);
    dependencies_.pool.Return(std::move(payload));
  } else {
    const size_t count = payload.num_bytes();
    if (copy.state_bytes + count > copy.state.num_bytes()) return false;
    std::memcpy(copy.state.bytes().data() + copy.state_bytes, payload.bytes().data(), count);
    copy.state_bytes += count;
    dependencies_.pool.Return(std::move(payload));
  }
  if (copy.next_part < meta.parts) return false;
  const bool has_value = copy.value.num_bytes() > 0;
  bytes_copied_ += copy.value.num_bytes() + copy.state_bytes;
  if (has_value) {
    state.Restore(header.step, meta.updates, std::move(copy.value), std::move(copy.state));
    ChunkSlot& chunk = *shard.chunks[index];
    chunk.clocks.Restore(std::move(copy.clocks));
    chunk.counted = {header.step, meta.digest};
    chunk.admission.reset();
    if (chunk.is_leading() && !meta.contributors.empty() && header.step > Step{0})
      chunk.admission = Admission{Step{header.step.value() - 1}, meta.contributors};
  } else {
    shard.chunks[index]->ClearState();
  }
  copy = CopyUnderWay{};
  return true;
}

void ShardReplication::Answer(LaneLink& link, ShardSlot& shard, Epoch epoch, const StreamAck& ack) {
  if (link.channel() == nullptr) return;
  link.channel()->Send(
      {.header = {.type = FrameType::kReplicateAck, .priority = kReplicaPriority, .epoch = epoch},
       .meta = EncodeReplicateAck({.shard = shard.id, .ack = ack}),
       .payload = {}});
}

ShardSlot* ShardReplication::Find(ShardId shard) {
  const auto it = shards_.find(shard);
  return it == shards_.end() ? nullptr : it->second;
}

}  // namespace pushpull
