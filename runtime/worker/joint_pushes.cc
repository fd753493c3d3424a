// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/joint_pushes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/consistency/push_numbers.h"
#include "runtime/replication/replica_frame.h"
#include "runtime/tensor/reduce.h"
#include "runtime/transport/frame.h"

namespace pushpull {
namespace {

constexpr Duration kPatienceMax = std::chrono::seconds(1);
// A sum waits for this part of what servers call a stall.
constexpr int kPatiencePerStall = 4;
// How many steps a worker that has waited in vain sums nothing, so that a late or unreachable
// member costs the others its delay once in so many steps.
constexpr uint64_t kPausedSteps = 64;
// Connections of other workers, those of dead processes included.
constexpr size_t kPeersMax = 2 * kGroupMembersMax;

std::span<const float> FloatsOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// The primary refuses other numbers, and says whose they are.
bool IsUsable(const Contribution& who, std::span<const float> values) {
  return CheckPushNumbers(who.weight, who.learning_rate).ok() && AllFinite(values);
}

bool Counts(const JointPush& push, const FrameHeader& for_whom) {
  return std::ranges::any_of(push.contributors, [&](const Contribution& contribution) {
    return contribution.worker == for_whom.worker &&
           contribution.incarnation == for_whom.incarnation;
  });
}

// The server's clock readings, as this worker's clock would have shown them.
PublishedTiming ByOwnClock(PublishedTiming timing, Duration offset) {
  const int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(offset).count();
  timing.received_at -= ns;
  if (timing.published_at != 0) timing.published_at -= ns;
  return timing;
}

}  // namespace

// Another worker's connection to this one.
struct JointPushes::Peer final : FrameHandler {
  Peer(JointPushes& its_owner, Hello its_hello, std::unique_ptr<Channel> its_channel)
      : owner(its_owner), hello(std::move(its_hello)), channel(std::move(its_channel)) {}

  std::span<std::byte> PayloadBuffer(Channel&, const FrameHeader& header) override {
    const ClientChunk* chunk = owner.chunks_.Find(header.chunk);
    const bool fits = chunk != nullptr && IsPush(header.type) && header.codec == Codec::kNone &&
                      header.dtype == DType::kFloat32 && chunk->dtype == header.dtype &&
                      header.payload_bytes == chunk->bytes;
    absl::StatusOr<HostBuffer> taken =
        fits ? owner.buffers_->Take(header.payload_bytes) : absl::InvalidArgumentError("");
    values = taken.ok() ? *std::move(taken) : HostBuffer();
    return values.bytes();
  }
  void OnFrame(Channel&, const ReceivedFrame& frame) override {
    HostBuffer received = std::exchange(values, {});
    if (IsPush(frame.header.type)) owner.OnPeerPush(*this, frame.header, std::move(received));
  }
  void OnPayloadLost(Channel&, const FrameHeader&) override { values = {}; }
  void OnClosed(Channel&, const absl::Status&) override { owner.Drop(*this); }

  JointPushes& owner;
  const Hello hello;
  HostBuffer values;                 // being received
  std::unique_ptr<Channel> channel;  // last: it may still call while it is destroyed
};

JointPushes::JointPushes(Hello hello, std::shared_ptr<GroupPort> port, Dependencies dependencies)
    : hello_(std::move(hello)),
      port_(std::move(port)),
      transport_(dependencies.transport),
      executor_(dependencies.executor),
      chunks_(dependencies.chunks),
      routes_(dependencies.routes),
      user_(dependencies.user),
      answers_(dependencies.answers),
      log_(dependencies.log) {
  if (port_ != nullptr) port_->SetUser(this);
}

JointPushes::~JointPushes() {
  if (port_ != nullptr) port_->SetUser(nullptr);
  executor_.Cancel(timer_);
}

// ---- who is in the group ----

void JointPushes::SetTensors(const std::vector<PlacedTensor>& tensors) {
  std::vector<uint64_t> bytes;
  for (const PlacedTensor& tensor : tensors) {
    const bool is_summed = IsSummedInGroups(tensor.spec);
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      bytes.push_back(is_summed ? chunks_.chunks()[bytes.size()].bytes : 0);
      reductions_.push_back(tensor.spec.reduction);
    }
  }
  group_.SetChunks(std::move(bytes));
}

void JointPushes::SetStallLimit(Duration stall) {
  patience_ = std::min(kPatienceMax, stall / kPatiencePerStall);
}

void JointPushes::SetGroup(const pushpull::SetGroup& message) {
  if (port_ == nullptr || message.members == group_.members()) return;
  const std::vector<GroupMember> before = group_.members();
  group_.SetMembers(message.members);
  std::erase_if(links_, [&](const auto& link) {
    const auto is_it = [&](const GroupMember& member) { return member.worker == link.first; };
    const auto was = std::ranges::find_if(before, is_it);
    const auto is = std::ranges::find_if(message.members, is_it);
    return was == before.end() || is == message.members.end() ||
           was->incarnation != is->incarnation || was->address != is->address;
  });
  for (const GroupMember& member : message.members) {
    if (member.worker == hello_.worker || links_.contains(member.worker)) continue;
    LaneLinkTarget target{.address = member.address, .hello = hello_, .worker = member.worker};
    Link& link = links_[member.worker];
    link.down_since = executor_.Now();
    link.link = std::make_unique<LaneLink>(
        transport_, executor_, std::move(target), static_cast<LaneLinkHandler&>(*this));
  }
  log_.Debug("group", {{"workers", message.members.size()}});
  // What is on its way to others, or waits here for them, belongs to the former group.
  for (ClientChunk& chunk : chunks_.chunks()) {
    const auto sum = sums_.find(chunks_.IdOf(chunk));
    const bool waits_here = sum != sums_.end() && !sum->second.is_pushed;
    if (waits_here || (chunk.push && chunk.push->is_with_group)) {
      Split(chunk);
    } else if (AwaitsLink(chunk)) {
      user_.SendPush(chunk);
    }
  }
  executor_.Cancel(std::exchange(timer_, 0));
  if (message.members.size() > 1) Tick();
}

const GroupMember* JointPushes::SummerOf(const ClientChunk& chunk) const {
  const ChunkId id = chunks_.IdOf(chunk);
  const bool is_joint =
      is_in_use_ && chunk.push && IsPush(chunk.push->type) && group_.IsJoint(id, chunk.push->step);
  return is_joint ? &group_.SummerOf(id, chunk.push->step) : nullptr;
}

// ---- this worker's pushes ----

std::optional<LaneLink*> JointPushes::Route(ClientChunk& chunk) {
  ChunkRequest& push = *chunk.push;
  if (push.is_alone || push.joint != nullptr) return std::nullopt;
  if (push.is_with_group) return nullptr;
  const GroupMember* summer = SummerOf(chunk);
  const bool is_own = summer != nullptr && summer->worker == hello_.worker;
  const auto link = summer == nullptr ? links_.end() : links_.find(summer->worker);
  const bool is_reachable =
      is_own ? push.step >= paused_until_
             : link != links_.end() && link->second.MayCome(executor_.Now(), patience_);
  if (!is_reachable) {
    push.is_alone = true;
    return std::nullopt;
  }
  if (!is_own && link->second.link->channel() == nullptr) return nullptr;  // until it is up
  push.is_with_group = true;
  if (!is_own) return link->second.link.get();
  OnOwn(chunk);
  return nullptr;
}

void JointPushes::OnOwn(ClientChunk& chunk) {
  const ChunkRequest& push = *chunk.push;
  const Contribution who{
      hello_.worker, hello_.incarnation, push.weight, push.learning_rate, push.step};
  const std::span<const float> values = FloatsOf(push.source);
  Sum* sum = SumOf(chunk, push.step);
  if (sum == nullptr || !IsUsable(who, values)) return Split(chunk);
  sum->parts.Add({.who = who, .own = values});
  CompleteIfReady(chunk);
}

void JointPushes::PushAlone(ClientChunk& chunk) {
  if (!chunk.push || !IsPush(chunk.push->type)) return;
  chunk.push->joint = nullptr;
  chunk.push->is_with_group = false;
  chunk.push->is_alone = true;
  user_.SendPush(chunk);
}

// ---- sums ----

JointPushes::Sum* JointPushes::SumOf(const ClientChunk& chunk, Step step) {
  const ChunkId id = chunks_.IdOf(chunk);
  const auto known = sums_.find(id);
  if (known != sums_.end()) return known->second.parts.step() == step ? &known->second : nullptr;
  return &sums_.emplace(id, Sum{.parts = JointSum(step), .began = executor_.Now()}).first->second;
}

bool JointPushes::Sums(const Peer& peer, const FrameHeader& push, const ClientChunk& chunk) const {
  const ChunkId id = push.chunk;
  if (!is_in_use_ || !group_.IsJoint(id, push.step)) return false;
  if (group_.SummerOf(id, push.step).worker != hello_.worker) return false;
  const bool is_member = std::ranges::any_of(group_.MembersIn(push.step), [&](const auto* member) {
    return member->worker == push.worker && member->incarnation == push.incarnation;
  });
  const bool is_pushed_alone = chunk.push && chunk.push->step == push.step && chunk.push->is_alone;
  return is_member && peer.hello.worker == push.worker && push.step >= chunk.version &&
         push.step >= paused_until_ && !is_pushed_alone;
}

void JointPushes::OnPeerPush(Peer& peer, const FrameHeader& push, HostBuffer values) {
  ClientChunk* chunk = chunks_.Find(push.chunk);
  const Waiter waiter{&peer, push};
  const Contribution who{push.worker, push.incarnation, push.weight, push.learning_rate, push.step};
  // A gradient may have been dropped for lack of memory.
  const bool is_complete = IsWithoutGradient(push) == (values.num_bytes() == 0);
  const bool is_summed =
      chunk != nullptr && is_complete && Sums(peer, push, *chunk) && IsUsable(who, values.floats());
  Sum* sum = is_summed ? SumOf(*chunk, push.step) : nullptr;
  if (sum == nullptr) return TellToPushAlone(waiter);
  if (sum->is_pushed && !(chunk->push && chunk->push->joint && Counts(*chunk->push->joint, push)))
    return TellToPushAlone(waiter);
  std::erase_if(sum->waiters,
                [&](const Waiter& known) { return known.push.worker == push.worker; });
  sum->waiters.push_back(waiter);
  if (sum->is_pushed) return;
  sum->parts.Add({.who = who, .values = std::move(values)});
  CompleteIfReady(*chunk);
}

void JointPushes::CompleteIfReady(ClientChunk& chunk) {
  const ChunkId id = chunks_.IdOf(chunk);
  Sum& sum = sums_.at(id);
  const Step step = sum.parts.step();
  const bool is_ready = chunk.push && chunk.push->step == step && !sum.is_pushed &&
                        sum.parts.IsOf(group_.MembersIn(step));
  if (!is_ready) return;
  ChunkRequest& push = *chunk.push;
  const std::shared_ptr<JointPush> joint = sum.parts.Reduce(reductions_[id.value()], *buffers_);
  if (joint == nullptr) return Split(chunk);
  joint->wants_value =
      !push.target.empty() || std::ranges::any_of(sum.waiters, [](const Waiter& waiter) {
        return waiter.push.type == FrameType::kPushPull;
      });
  if (joint->wants_value) {
    absl::StatusOr<HostBuffer> value = buffers_->Take(chunk.bytes);
    if (!value.ok()) return Split(chunk);
    joint->value = *std::move(value);
  }
  sum.is_pushed = true;
  push.joint = joint;
  push.is_with_group = false;
  push.times.group_wait += executor_.Now() - push.times.queued;
  user_.SendPush(chunk);
}

void JointPushes::PassOn(const ClientChunk& chunk,
                         const ChunkRequest& push,
                         const ReceivedFrame& frame,
                         Duration offset) {
  const auto sum = sums_.find(chunks_.IdOf(chunk));
  if (sum == sums_.end() || sum->second.parts.step() > push.step) return;
  if (push.joint == nullptr) return Abandon(chunk);
  const std::vector<Waiter> waiters = std::move(sum->second.waiters);
  sums_.erase(sum);
  const absl::StatusOr<PublishedTiming> timing = DecodePublishedTiming(frame.meta);
  const std::vector<std::byte> meta =
      EncodePublishedTiming(timing.ok() ? ByOwnClock(*timing, offset) : PublishedTiming());
  for (const Waiter& waiter : waiters) {
    OutgoingFrame answer{.header = waiter.push, .meta = meta, .payload = {}};
    answer.header.type = FrameType::kPublished;
    answer.header.flags = frame.header.flags & kFlagNoGradient;
    answer.header.epoch = frame.header.epoch;
    answer.header.step = frame.header.step;
    answer.header.clock = Step{push.step.value() + 1};
    answer.header.weight = frame.header.weight;
    if (waiter.push.epoch < frame.header.epoch) {
      const std::vector<std::byte> entry =
          EncodeShardEntry({chunk.shard, routes_.EntryOf(chunk.shard)});
      answer.meta.insert(answer.meta.end(), entry.begin(), entry.end());
    }
    if (waiter.push.type == FrameType::kPushPull)
      answer.payload = {push.joint->value.bytes(), push.joint};
    waiter.peer->channel->Send(std::move(answer));
  }
}

void JointPushes::Abandon(const ClientChunk& chunk) {
  const auto sum = sums_.find(chunks_.IdOf(chunk));
  if (sum == sums_.end()) return;
  const std::vector<Waiter> waiters = std::move(sum->second.waiters);
  sums_.erase(sum);
  for (const Waiter& waiter : waiters) TellToPushAlone(waiter);
}

void JointPushes::Split(ClientChunk& chunk) {
  Abandon(chunk);
  PushAlone(chunk);
}

void JointPushes::Clear() {
  for (const ClientChunk& chunk : chunks_.chunks()) Abandon(chunk);
}

void JointPushes::TellToPushAlone(const Waiter& waiter) {
  OutgoingFrame answer{.header = waiter.push, .meta = {}, .payload = {}};
  answer.header.type = FrameType::kRefused;
  answer.header.flags = 0;
  answer.meta = EncodeRefusal(absl::CancelledError(
      absl::StrCat(ToString(hello_.worker), " does not sum this push: send it to the primary")));
  waiter.peer->channel->Send(std::move(answer));
}

// ---- links to the members that sum this worker's pushes ----

bool JointPushes::Link::MayCome(SteadyTime now, Duration patience) const {
  return link->channel() != nullptr || (!is_refused && now - down_since < patience);
}

bool JointPushes::AwaitsLink(const ClientChunk& chunk) const {
  const std::optional<ChunkRequest>& push = chunk.push;
  return push && IsPush(push->type) && !push->is_alone && !push->is_with_group &&
         push->joint == nullptr && !push->is_held && !push->waits && !push->is_answered;
}

void JointPushes::OnLinkUp(LaneLink& link) {
  for (ClientChunk& chunk : chunks_.chunks()) {
    const GroupMember* summer = SummerOf(chunk);
    if (summer != nullptr && summer->worker == *link.worker() && AwaitsLink(chunk))
      user_.SendPush(chunk);
  }
}

void JointPushes::OnLinkRefused(LaneLink& link, const absl::Status& why) {
  log_.Warning("a worker of the group refuses this one",
               {{"peer", NameOf(link)}, {"why", why.message()}});
  links_.at(*link.worker()).is_refused = true;
  OnLinkWaiting(link, why, {});
}

void JointPushes::OnLinkWaiting(LaneLink& link, const absl::Status& why, Duration lasted) {
  log_.Debug("no connection to a worker of the group",
             {{"peer", NameOf(link)}, {"why", why.message()}});
  links_.at(*link.worker()).down_since = executor_.Now() - lasted;
  for (ClientChunk& chunk : chunks_.chunks()) {
    const GroupMember* summer = SummerOf(chunk);
    const bool is_there = summer != nullptr && summer->worker == *link.worker();
    if (is_there && chunk.push->is_with_group) PushAlone(chunk);
  }
}

std::span<std::byte> JointPushes::PayloadBuffer(LaneLink& link, const FrameHeader& header) {
  if (header.type != FrameType::kPublished) return {};
  return answers_.PayloadBuffer(link, header);
}

void JointPushes::OnFrame(LaneLink& link, const ReceivedFrame& frame) {
  ClientChunk* chunk = chunks_.Find(frame.header.chunk);
  if (chunk == nullptr) return;
  if (frame.header.type == FrameType::kPublished) return answers_.OnFrame(link, frame);
  const bool is_of_push = frame.header.type == FrameType::kRefused && chunk->push &&
                          chunk->push->is_with_group && chunk->push->step == frame.header.step;
  if (is_of_push) PushAlone(*chunk);
}

void JointPushes::ResendLost(Duration after) {
  const SteadyTime now = executor_.Now();
  for (ClientChunk& chunk : chunks_.chunks()) {
    if (!chunk.push || !chunk.push->is_with_group || now - chunk.push->sent < after) continue;
    const GroupMember* summer = SummerOf(chunk);
    const auto link = summer == nullptr ? links_.end() : links_.find(summer->worker);
    if (link == links_.end()) continue;
    const Channel* channel = link->second.link->channel();
    if (channel == nullptr || channel->is_reliable()) continue;
    chunk.push->is_with_group = false;
    user_.SendPush(chunk);
  }
}

// ---- other workers' connections ----

void JointPushes::OnPeer(const Hello& hello, std::unique_ptr<Channel> channel) {
  if (peers_.size() >= kPeersMax) return;
  auto peer = std::make_unique<Peer>(*this, hello, std::move(channel));
  Peer& added = *peer;
  peers_.emplace(&added, std::move(peer));
  added.channel->Start(added);
}

void JointPushes::Drop(Peer& peer) {
  for (auto& [id, sum] : sums_)
    std::erase_if(sum.waiters, [&](const Waiter& waiter) { return waiter.peer == &peer; });
  const auto dropped = peers_.find(&peer);
  if (dropped == peers_.end()) return;
  // Its channel is calling: destroyed once this callback has returned.
  executor_.Post([doomed = std::shared_ptr<Peer>(std::move(dropped->second))] {});
  peers_.erase(dropped);
}

// ---- time ----

void JointPushes::Tick() {
  timer_ = executor_.RunAfter(patience_ / 2, [this] { Tick(); });
  const SteadyTime now = executor_.Now();
  for (ClientChunk& chunk : chunks_.chunks()) {
    const auto sum = sums_.find(chunks_.IdOf(chunk));
    const bool is_overdue =
        sum != sums_.end() && !sum->second.is_pushed && now - sum->second.began >= patience_;
    if (is_overdue) {
      paused_until_ =
          std::max(paused_until_, Step{sum->second.parts.step().value() + kPausedSteps});
      Split(chunk);
    } else if (AwaitsLink(chunk) && SummerOf(chunk) != nullptr) {
      user_.SendPush(chunk);  // alone, if the link has been down for too long
    }
  }
}

}  // namespace pushpull
