// SPDX-License-Identifier: Apache-2.0
#include "runtime/replication/shard_member.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace pushpull {

ShardMember::Change ShardMember::Install(const ReplicaSet& entry, Via via) {
  Change change;
  if (entry.epoch <= entry_.epoch || entry.epoch.term < promised_) return change;
  change.is_taken = true;
  const ReplicaRole before = role();
  const bool is_same_primary = entry.primary && entry.primary == entry_.primary;
  entry_ = entry;
  const ReplicaRole now = role();

  if (now != ReplicaRole::kPrimary && reigns_) {
    reigns_ = false;
    acked_.clear();
    change.has_ended = true;
  }
  handover_.reset();

  const bool held_nothing_before = before == ReplicaRole::kNone || before == ReplicaRole::kLearner;
  if (now == ReplicaRole::kNone || now == ReplicaRole::kLearner) is_full_ = false;
  if (now == ReplicaRole::kNone) {
    // Its state goes, so nothing of it may look equal to what others have.
    seq_ = 0;
    std::fill(last_entries_.begin(), last_entries_.end(), LastEntry{});
  }
  // A learner that becomes a follower is one when it has caught up as one.
  if (now == ReplicaRole::kFollower && held_nothing_before) is_full_ = false;
  if (via == Via::kFirst && now >= ReplicaRole::kFollower) is_full_ = true;

  if (via == Via::kRebuilt && now == ReplicaRole::kPrimary) {
    BeginRebuilt();
    change.has_begun = true;
    return change;
  }
  if (reigns_) {
    KeepStreams();
    return change;
  }
  outgoing_.clear();
  if (now == ReplicaRole::kPrimary) {
    incoming_.is_joined = false;
    // A server named primary never starts without the state; the coordinator hears of it.
    if (!is_full_ && via != Via::kHandedOver) return change;
    Begin();
    change.has_begun = true;
    return change;
  }
  FollowPrimary(is_same_primary, change);
  return change;
}

void ShardMember::Promise(Term term) {
  promised_ = std::max(promised_, term);
}

// The reign goes on: so do the streams of those who are still members, each to be confirmed anew.
void ShardMember::KeepStreams() {
  const auto is_gone = [&](const auto& of_member) {
    const ReplicaRole its_role = entry_.RoleOf(of_member.first);
    return its_role != ReplicaRole::kFollower && its_role != ReplicaRole::kLearner;
  };
  std::erase_if(acked_, is_gone);
  std::erase_if(outgoing_, is_gone);
  for (auto& [member, out] : outgoing_) out.has_caught_up_frame = false;
}

void ShardMember::FollowPrimary(bool is_same_primary, Change& change) {
  const bool has_primary = role() != ReplicaRole::kNone && entry_.primary.has_value();
  if (!has_primary || !is_same_primary || !incoming_.is_joined) {
    incoming_.is_joined = false;
    change.must_join = has_primary;
    return;
  }
  incoming_.is_confirmed = false;
  if (incoming_.early_epoch != entry_.epoch) return;
  incoming_.is_confirmed = true;
  if (role() == ReplicaRole::kFollower) is_full_ = true;
  change.late_answer = StreamAck{incoming_.early_at, seq_, true};
}

void ShardMember::Begin() {
  reigns_ = true;
  is_full_ = true;
  acked_.clear();
  // What the log holds may be more than the followers have: nothing is published, not even an old
  // version, before they have all of it.
  for (LastEntry& last : last_entries_) last.seq = seq_;
}

// The same versions may have been other bits before: the optimizer's state is not what it was.
void ShardMember::BeginRebuilt() {
  outgoing_.clear();
  incoming_.is_joined = false;
  ++seq_;
  Begin();
  for (LastEntry& last : last_entries_) last.epoch = entry_.epoch;
}

// ---- the primary ----

uint64_t ShardMember::Append(size_t chunk) {
  PUSHPULL_CHECK(reigns_);
  last_entries_[chunk] = {++seq_, entry_.epoch};
  return seq_;
}

bool ShardMember::MayPublish(size_t chunk) const {
  if (!is_open()) return false;
  return std::all_of(entry_.followers.begin(), entry_.followers.end(), [&](ServerId follower) {
    const auto acked = acked_.find(follower);
    return acked != acked_.end() && acked->second >= last_entries_[chunk].seq;
  });
}

bool ShardMember::Open(ServerId member,
                       Epoch epoch,
                       uint64_t stream,
                       std::span<const ChunkStamp> theirs,
                       std::span<const ChunkStamp> ours) {
  const ReplicaRole of_member = entry_.RoleOf(member);
  const bool may_join = of_member == ReplicaRole::kFollower || of_member == ReplicaRole::kLearner;
  if (!reigns_ || epoch != entry_.epoch || !may_join || theirs.size() != ours.size()) return false;
  const auto held = outgoing_.find(member);
  if (held != outgoing_.end() && held->second.stream >= stream) return false;
  Outgoing& out = outgoing_[member];
  out = Outgoing{.stream = stream};
  for (size_t chunk = 0; chunk < ours.size(); ++chunk) {
    if (ours[chunk] != theirs[chunk]) out.to_copy.insert(chunk);
  }
  return true;
}

std::optional<StreamPosition> ShardMember::PlaceEntry(ServerId member, size_t chunk) {
  const auto out = outgoing_.find(member);
  if (out == outgoing_.end()) return std::nullopt;
  // Not before the start frame: what changes until then is copied.
  if (out->second.next_position == 0) out->second.to_copy.insert(chunk);
  if (out->second.to_copy.contains(chunk)) return std::nullopt;
  return StreamPosition{out->second.stream, out->second.next_position++};
}

std::vector<ServerId> ShardMember::Streams() const {
  std::vector<ServerId> members;
  members.reserve(outgoing_.size());
  for (const auto& [member, out] : outgoing_) members.push_back(member);
  return members;
}

std::vector<ShardMember::StreamFrame> ShardMember::NextFrames(ServerId member) {
  std::vector<StreamFrame> frames;
  const auto it = outgoing_.find(member);
  if (it == outgoing_.end()) return frames;
  Outgoing& out = it->second;
  const auto add = [&](StreamFrame::Kind kind, size_t chunk) {
    frames.push_back({kind, {out.stream, out.next_position++}, chunk});
  };
  if (out.next_position == 0) add(StreamFrame::Kind::kStart, 0);
  while (!out.to_copy.empty() && out.copies_under_way.size() < kCopiesUnderWayMax) {
    const size_t chunk = *out.to_copy.begin();
    out.to_copy.erase(out.to_copy.begin());
    out.copies_under_way.insert(out.next_position);
    add(StreamFrame::Kind::kCopy, chunk);
  }
  if (out.to_copy.empty() && !out.has_caught_up_frame) {
    out.has_caught_up_frame = true;
    add(StreamFrame::Kind::kCaughtUp, 0);
  }
  return frames;
}

bool ShardMember::OnAck(ServerId member, const StreamAck& ack) {
  const auto it = outgoing_.find(member);
  const bool is_current = reigns_ && it != outgoing_.end() && it->second.stream == ack.at.stream &&
                          ack.at.position < it->second.next_position;
  if (!is_current) return false;
  Outgoing& out = it->second;
  out.copies_under_way.erase(out.copies_under_way.begin(),
                             out.copies_under_way.upper_bound(ack.at.position));
  if (ack.seq && *ack.seq <= seq_) {
    uint64_t& acked = acked_[member];
    acked = std::max(acked, *ack.seq);
  }
  return true;
}

bool ShardMember::BeginHandover(Epoch current, const ReplicaSet& next) {
  if (!reigns_ || entry_.epoch != current || next.epoch <= current || !next.primary) return false;
  if (next.epoch.term < promised_) return false;
  handover_ = next;
  return true;
}

std::optional<ReplicaSet> ShardMember::HandoverDue() const {
  // One of an earlier coordinator must not end any more; the next entry cancels it.
  if (!handover_ || !reigns_ || handover_->epoch.term < promised_) return std::nullopt;
  const auto acked = acked_.find(*handover_->primary);
  const bool has_everything =
      acked != acked_.end() && acked->second >= seq_ && outgoing_.contains(*handover_->primary);
  return has_everything ? handover_ : std::nullopt;
}

// ---- the other members ----

uint64_t ShardMember::Join() {
  incoming_ = Incoming{.is_joined = true, .stream = incoming_.stream + 1};
  return incoming_.stream;
}

ShardMember::Verdict ShardMember::Judge(ServerId from, StreamPosition at) const {
  const bool is_ours =
      !reigns_ && incoming_.is_joined && entry_.primary == from && at.stream == incoming_.stream;
  if (!is_ours || at.position < incoming_.next_position) return Verdict::kIgnore;
  return at.position == incoming_.next_position ? Verdict::kTake : Verdict::kJoinAgain;
}

StreamAck ShardMember::TakeStart(uint64_t seq) {
  incoming_.seq = seq;
  incoming_.is_catching_up = true;
  return Answer(false);
}

StreamAck ShardMember::TakeCopy(size_t chunk, Epoch chunk_epoch) {
  last_entries_[chunk] = {incoming_.seq, chunk_epoch};
  return Answer(false);
}

StreamAck ShardMember::TakeEntry(size_t chunk, Epoch epoch, uint64_t seq) {
  incoming_.seq = seq;
  last_entries_[chunk] = {seq, epoch};
  if (!incoming_.is_catching_up) seq_ = seq;
  return Answer(false);
}

std::optional<StreamAck> ShardMember::TakeCaughtUp(Epoch epoch, uint64_t seq) {
  incoming_.is_catching_up = false;
  incoming_.seq = seq;
  seq_ = seq;
  if (epoch > entry_.epoch) {
    incoming_.early_epoch = epoch;
    incoming_.early_at = {incoming_.stream, incoming_.next_position++};
    return std::nullopt;
  }
  if (epoch == entry_.epoch) {
    incoming_.is_confirmed = true;
    if (role() == ReplicaRole::kFollower) is_full_ = true;
  }
  return Answer(true);
}

StreamAck ShardMember::Answer(bool is_caught_up) {
  return {.at = {incoming_.stream, incoming_.next_position++},
          .seq = incoming_.is_catching_up ? std::nullopt : std::optional<uint64_t>(seq_),
          .is_caught_up = is_caught_up};
}

}  // namespace pushpull
