// SPDX-License-Identifier: Apache-2.0
#include "runtime/server/follower_streams.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status_macros.h"
#include "runtime/transport/lane.h"

namespace pushpull {
namespace {

// In units of retry_after.
constexpr int kRetryOnceStarted = 20;
// A connection that is lost for less than this is no problem.
constexpr Duration kWarnedAfter = std::chrono::seconds(1);

bool FollowsPrimary(const ShardMember& member) {
  return IsCopy(member.role()) && member.entry().primary.has_value();
}

}  // namespace

void FollowerStreams::SetServers(const std::vector<ServerEndpoint>& servers) {
  std::map<ServerId, ServerEndpoint> now;
  for (const ServerEndpoint& server : servers) now[server.server] = server;
  // A server restarted at another address gets a new link; streams over the old one are rejoined
  // when the new one is up.
  std::erase_if(links_, [&](const auto& link) {
    const auto known = now.find(link.first.first);
    const bool is_same = known != now.end() && known->second.data_address == link.second->address();
    if (!is_same) payloads_.erase(link.second.get());
    return !is_same;
  });
  servers_ = std::move(now);
  CheckJoins();
}

void FollowerStreams::OnEntry(Shard& shard,
                              const ShardMember::Change& change,
                              bool has_handed_over) {
  const ShardMember& member = shard.member();
  Incoming& incoming = incoming_[shard.id()];
  incoming.has_handed_over = has_handed_over;
  if (!member.incoming().is_joined()) incoming.copy = Copy{};
  if (change.late_answer) {
    LaneLink* link = LinkTo(*member.entry().primary, shard.id());
    if (link != nullptr) Answer(*link, shard, member.entry().epoch, *change.late_answer);
  }
  if (change.must_join) Join(shard);
  if (FollowsPrimary(member)) CheckJoinsLater();
}

// LacksJoiner ended these streams. The primary may know the view by now; otherwise its next entry
// ends the stream again.
void FollowerStreams::OnViewChanged() {
  for (const auto& [id, shard] : lane_.shards.all())
    if (FollowsPrimary(shard->member()) && !shard->member().incoming().is_joined()) Join(*shard);
}

LaneLink* FollowerStreams::LinkTo(ServerId server, ShardId shard) {
  const auto endpoint = servers_.find(server);
  if (endpoint == servers_.end()) return nullptr;
  const size_t lane = LaneOf(shard, endpoint->second.lanes);
  auto& link = links_[{server, lane}];
  if (link == nullptr) {
    link = std::make_unique<LaneLink>(lane_.transport,
                                      lane_.executor,
                                      LaneLinkTarget{.server = server,
                                                     .address = endpoint->second.data_address,
                                                     .hello = {.job = lane_.job,
                                                               .worker = {},
                                                               .incarnation = lane_.incarnation,
                                                               .lane = static_cast<uint32_t>(lane),
                                                               .server = lane_.server},
                                                     .local_lane = lane_.index},
                                      *this);
  }
  return link.get();
}

// Frames of the previous stream are ignored from here on, so a copy that was arriving starts over.
// The stamps tell the primary which chunks it need not copy.
void FollowerStreams::Join(Shard& shard) {
  Incoming& incoming = incoming_[shard.id()];
  incoming.copy = Copy{};
  incoming.heard_at = lane_.executor.Now();
  const uint64_t stream = shard.member().incoming().Join();
  CheckJoinsLater();
  LaneLink* link = LinkTo(*shard.member().entry().primary, shard.id());
  if (link == nullptr || link->channel() == nullptr) return;  // OnLinkUp joins again
  const auto stamps = std::make_shared<const std::vector<std::byte>>(EncodeStamps(shard.Stamps()));
  link->channel()->Send({.header = {.type = FrameType::kJoinShard,
                                    .priority = kReplicationPriority,
                                    .epoch = shard.member().entry().epoch},
                         .meta = EncodeJoinShard({.shard = shard.id(),
                                                  .stream = stream,
                                                  .is_handover = incoming.has_handed_over,
                                                  .entry = shard.member().entry(),
                                                  .seq = shard.member().seq()}),
                         .payload = {*stamps, stamps}});
}

void FollowerStreams::CheckJoinsLater() {
  if (timer_ != 0) return;
  timer_ = lane_.executor.RunAfter(lane_.retry_after, [this] {
    timer_ = 0;
    CheckJoins();
  });
}

// Asks again if a primary has not answered: it may not have the entry yet, or a frame was lost. A
// stream that has started gets more time: a copy may be arriving over a slow link.
void FollowerStreams::CheckJoins() {
  const SteadyTime now = lane_.executor.Now();
  bool must_check_again = false;
  for (const auto& [id, shard] : lane_.shards.all()) {
    const ShardMember& member = shard->member();
    if (!FollowsPrimary(member) || !member.incoming().is_joined()) continue;
    LaneLink* link = LinkTo(*member.entry().primary, id);
    const bool may_lose =
        link != nullptr && link->channel() != nullptr && !link->channel()->is_reliable();
    if (member.incoming().is_confirmed() && !may_lose) continue;
    must_check_again = true;
    const bool is_slow = member.incoming().has_started() && !may_lose;
    const Duration timeout = lane_.retry_after * (is_slow ? kRetryOnceStarted : 1);
    if (now - incoming_[id].heard_at >= timeout) Join(*shard);
  }
  if (must_check_again) CheckJoinsLater();
}

void FollowerStreams::OnLinkUp(LaneLink& link) {
  for (const auto& [id, shard] : lane_.shards.all()) {
    if (!FollowsPrimary(shard->member()) || shard->member().entry().primary != link.server())
      continue;
    if (LinkTo(link.server(), id) == &link) Join(*shard);
  }
}

void FollowerStreams::OnLinkRefused(LaneLink& link, const absl::Status& why) {
  lane_.log.Warning("a server refuses replication",
                    {{"server", ToString(link.server())}, {"why", why.message()}});
}

void FollowerStreams::OnLinkWaiting(LaneLink& link, const absl::Status& why, Duration lasted) {
  const Log::Fields fields = {
      {"peer", absl::StrCat(ToString(link.server()), " (", link.address(), ")")},
      {"why", why.message()},
      {"lost_seconds", ToSeconds(lasted)}};
  // At the end of a job one server goes before the others.
  lasted < kWarnedAfter ? lane_.log.Info("no connection, trying again", fields)
                        : lane_.log.Warning("no connection, trying again", fields);
}

std::span<std::byte> FollowerStreams::PayloadBuffer(LaneLink& link, const FrameHeader& header) {
  HostBuffer& buffer = payloads_[&link];
  lane_.pool->Return(std::move(buffer));
  absl::StatusOr<HostBuffer> fresh = lane_.pool->Take(header.payload_bytes);
  if (!fresh.ok()) return {};
  buffer = *std::move(fresh);
  return buffer.bytes();
}

// A link may lose, repeat and reorder frames (inproc in tests does): the member takes only the next
// position of its stream. A repeated frame is ignored; after a gap it joins again.
void FollowerStreams::OnFrame(LaneLink& link, const ReceivedFrame& frame) {
  HostBuffer payload = std::exchange(payloads_[&link], HostBuffer());
  const absl::StatusOr<StreamMeta> meta = DecodeStreamMeta(frame.meta);
  Shard* shard = meta.ok() ? lane_.shards.Find(meta->shard) : nullptr;
  if (shard != nullptr) {
    switch (shard->member().Judge(link.server(), meta->at)) {
      case IncomingStream::Verdict::kIgnore:
        break;
      case IncomingStream::Verdict::kJoinAgain:
        Join(*shard);
        break;
      case IncomingStream::Verdict::kTake:
        Dispatch(link, {*shard, shard->Find(frame.header.chunk), *meta, frame.header, payload});
    }
  }
  lane_.pool->Return(std::move(payload));
}

// Handles the next frame of the stream. Each one taken is answered, so that the primary knows what
// it may publish and how many copies it may send.
void FollowerStreams::Dispatch(LaneLink& link, const Arrived& frame) {
  const auto& [shard, chunk, meta, header, payload] = frame;
  ShardMember& member = shard.member();
  Incoming& incoming = incoming_[shard.id()];
  incoming.heard_at = lane_.executor.Now();
  switch (header.type) {
    case FrameType::kStreamStart:
      incoming.has_handed_over = false;
      return Answer(link, shard, header.epoch, member.TakeStart(meta.seq));
    case FrameType::kCaughtUp:
      if (const auto ack = member.TakeCaughtUp(header.epoch, meta.seq))
        Answer(link, shard, header.epoch, *ack);
      return;
    case FrameType::kCopyChunk:
      if (!TakeCopyPart(frame)) return;
      return Answer(
          link, shard, header.epoch, member.TakeCopy(chunk->index_in_shard(), meta.chunk_epoch));
    case FrameType::kReplicate:
      if (LacksJoiner(meta, header.step)) return member.incoming().Leave();
      if (!TakeEntry(frame)) return Join(shard);
      return Answer(link,
                    shard,
                    header.epoch,
                    member.TakeEntry(chunk->index_in_shard(), header.epoch, meta.seq));
    default:
      return;
  }
}

// An entry that lacks a joiner whose view this server has accepted must not become publishable: the
// joiner would be overtaken.
bool FollowerStreams::LacksJoiner(const StreamMeta& meta, Step step) const {
  if (meta.kind == LogEntryKind::kInitialize || meta.kind == LogEntryKind::kAdvance) return false;
  const MembershipView& membership = lane_.rules.membership();
  if (!membership.proposed() || meta.update) return false;
  // With backup workers, steps wait for no particular worker.
  if (membership.active().consistency.admits()) return false;
  const auto& members = membership.proposed()->members;
  return absl::c_any_of(members, [&](const ViewMember& joiner) {
    const ViewMember* active = membership.active().Find(joiner.worker);
    const bool is_new = active == nullptr || active->incarnation != joiner.incarnation;
    return is_new && joiner.ContributesTo(step) &&
           !absl::c_linear_search(meta.contributors, joiner.worker);
  });
}

bool FollowerStreams::TakeEntry(const Arrived& entry) {
  if (entry.chunk == nullptr) return false;
  // An entry that does not fit is repaired by a new stream, which copies the chunk.
  const absl::Status applied = entry.chunk->Apply(entry.meta, entry.header, entry.payload);
  if (absl::IsResourceExhausted(applied)) lane_.notify(Failure{applied});
  return applied.ok();
}

// The chunk keeps its old state until all parts have arrived: this server may become primary
// meanwhile, and must have what was published.
bool FollowerStreams::TakeCopyPart(const Arrived& part) {
  const StreamMeta& meta = part.meta;
  Copy& copy = incoming_[part.shard.id()].copy;
  if (meta.part == 0) copy = Copy{};
  if (part.chunk == nullptr || meta.part != copy.next_part) {
    if (meta.part > copy.next_part) Join(part.shard);
    return false;
  }
  ++copy.next_part;
  const absl::Status added = AddPart(part, copy);
  if (absl::IsResourceExhausted(added)) Join(part.shard);
  if (!added.ok() || copy.next_part < meta.parts) return false;
  const absl::Status installed = InstallCopy(part, std::exchange(copy, Copy{}));
  if (!installed.ok()) Join(part.shard);
  return installed.ok();
}

// The first part is the value, the last the clocks; the optimizer state comes in between. A chunk
// without a value has a single, empty part.
absl::Status FollowerStreams::AddPart(const Arrived& part, Copy& copy) {
  ChunkSnapshot& snapshot = copy.snapshot;
  if (part.meta.part == 0) {
    snapshot.value = std::move(part.payload);
    uint64_t state_bytes = part.chunk->state().state_bytes();
    if (const RowTable* rows = part.chunk->state().rows(); rows && snapshot.value.num_bytes() > 0) {
      PUSHPULL_ASSIGN_OR_RETURN(state_bytes, rows->ImageBytes(snapshot.value.bytes()));
    }
    PUSHPULL_ASSIGN_OR_RETURN(snapshot.optimizer_state, HostBuffer::Uninitialized(state_bytes));
    return absl::OkStatus();
  }
  const std::span<const std::byte> bytes = part.payload.bytes();
  if (part.meta.part + 1 == part.meta.parts) {
    PUSHPULL_ASSIGN_OR_RETURN(snapshot.clocks, DecodeClocks(bytes));
    return absl::OkStatus();
  }
  const std::span<std::byte> left = snapshot.optimizer_state.bytes().subspan(copy.state_bytes);
  if (bytes.size() > left.size()) {
    return absl::DataLossError(
        absl::StrCat(part.chunk->Name(), ": more optimizer state than it has"));
  }
  absl::c_copy(bytes, left.begin());
  copy.state_bytes += bytes.size();
  return absl::OkStatus();
}

absl::Status FollowerStreams::InstallCopy(const Arrived& last, Copy copy) {
  ChunkSnapshot& snapshot = copy.snapshot;
  bytes_copied_ += snapshot.value.num_bytes() + copy.state_bytes;
  if (snapshot.value.num_bytes() == 0) {
    last.chunk->Clear();
    return absl::OkStatus();
  }
  snapshot.version = last.header.step;
  snapshot.updates = last.meta.updates;
  snapshot.made_by = {last.meta.digest, last.meta.clip_scale, last.meta.has_gradient};
  if (!last.meta.contributors.empty() && snapshot.version > Step{0})
    snapshot.admission = Admission{Step{snapshot.version.value() - 1}, last.meta.contributors};
  return last.chunk->Restore(std::move(snapshot));
}

void FollowerStreams::Answer(LaneLink& link,
                             const Shard& shard,
                             Epoch epoch,
                             const StreamAck& ack) {
  if (link.channel() == nullptr) return;
  link.channel()->Send({.header = {.type = FrameType::kReplicateAck,
                                   .priority = kReplicationPriority,
                                   .epoch = epoch},
                        .meta = EncodeReplicateAck({.shard = shard.id(), .ack = ack}),
                        .payload = {}});
}

}  // namespace pushpull
