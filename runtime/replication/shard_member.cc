// SPDX-License-Identifier: Apache-2.0
#include "runtime/replication/shard_member.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

#include "runtime/base/check.h"

namespace pushpull {

// ---- OutgoingStreams ----

std::vector<ServerId> OutgoingStreams::Members() const {
  std::vector<ServerId> members;
  members.reserve(streams_.size());
  for (const auto& [member, stream] : streams_) members.push_back(member);
  return members;
}

bool OutgoingStreams::Open(ServerId member, uint64_t stream, std::set<size_t> to_copy) {
  const auto known = streams_.find(member);
  if (known != streams_.end() && known->second.number >= stream) return false;
  streams_[member] = Stream{.number = stream, .to_copy = std::move(to_copy)};
  return true;
}

void OutgoingStreams::Keep(const ReplicaSet& entry) {
  std::erase_if(streams_, [&](const auto& stream) { return !IsCopy(entry.RoleOf(stream.first)); });
  for (auto& [member, stream] : streams_) stream.has_caught_up_frame = false;
}

std::optional<StreamPosition> OutgoingStreams::PlaceEntry(ServerId member, size_t chunk) {
  const auto it = streams_.find(member);
  if (it == streams_.end()) return std::nullopt;
  Stream& stream = it->second;
  // No entries before the start frame: chunks that change until then are copied.
  if (stream.next_position == 0) stream.to_copy.insert(chunk);
  if (stream.to_copy.contains(chunk)) return std::nullopt;
  return StreamPosition{stream.number, stream.next_position++};
}

std::vector<OutgoingStreams::Frame> OutgoingStreams::NextFrames(ServerId member) {
  std::vector<Frame> frames;
  const auto it = streams_.find(member);
  if (it == streams_.end()) return frames;
  Stream& stream = it->second;
  const auto add = [&](Frame::Kind kind, size_t chunk) {
    frames.push_back({kind, {stream.number, stream.next_position++}, chunk});
  };
  if (stream.next_position == 0) add(Frame::Kind::kStart, 0);
  while (!stream.to_copy.empty() && stream.copies_under_way.size() < kCopiesUnderWayMax) {
    const size_t chunk = *stream.to_copy.begin();
    stream.to_copy.erase(stream.to_copy.begin());
    stream.copies_under_way.insert(stream.next_position);
    add(Frame::Kind::kCopy, chunk);
  }
  if (stream.to_copy.empty() && !stream.has_caught_up_frame) {
    stream.has_caught_up_frame = true;
    add(Frame::Kind::kCaughtUp, 0);
  }
  return frames;
}

// An acknowledgement covers all earlier positions: a member takes frames in order.
bool OutgoingStreams::OnAck(ServerId member, StreamPosition at) {
  const auto it = streams_.find(member);
  if (it == streams_.end()) return false;
  Stream& stream = it->second;
  if (stream.number != at.stream || at.position >= stream.next_position) return false;
  stream.copies_under_way.erase(stream.copies_under_way.begin(),
                                stream.copies_under_way.upper_bound(at.position));
  return true;
}

// ---- IncomingStream ----

uint64_t IncomingStream::Join() {
  *this = IncomingStream(number_ + 1);
  return number_;
}

IncomingStream::Verdict IncomingStream::Judge(StreamPosition at) const {
  const bool is_ours = is_joined_ && at.stream == number_;
  if (!is_ours || at.position < next_position_) return Verdict::kIgnore;
  return at.position == next_position_ ? Verdict::kTake : Verdict::kJoinAgain;
}

void IncomingStream::Start(uint64_t seq) {
  seq_ = seq;
  is_catching_up_ = true;
}

void IncomingStream::ConfirmEarly(Epoch epoch) {
  early_epoch_ = epoch;
  early_at_ = Answer();
}

std::optional<StreamPosition> IncomingStream::ConfirmAnew(Epoch epoch) {
  is_confirmed_ = early_epoch_ == epoch;
  return is_confirmed_ ? std::optional<StreamPosition>(early_at_) : std::nullopt;
}

// ---- ShardMember ----

ShardMember::Change ShardMember::Install(const ReplicaSet& entry, Via via) {
  Change change;
  if (entry.epoch <= entry_.epoch || entry.epoch.term < promised_) return change;
  change.is_taken = true;
  const ReplicaRole before = role();
  const bool is_same_primary = entry.primary && entry.primary == entry_.primary;
  entry_ = entry;
  const ReplicaRole now = role();

  if (now != ReplicaRole::kPrimary && is_primary_) {
    is_primary_ = false;
    acked_.clear();
    change.is_demoted = true;
  }
  handover_.reset();

  const bool held_nothing_before = before == ReplicaRole::kNone || before == ReplicaRole::kLearner;
  if (now == ReplicaRole::kNone || now == ReplicaRole::kLearner) is_full_ = false;
  if (now == ReplicaRole::kNone) {
    // Its state is dropped, so none of it may look equal to that of others.
    seq_ = 0;
    absl::c_fill(last_entries_, LastEntry{});
  }
  // A learner made follower counts as full only once it has caught up as a follower.
  if (now == ReplicaRole::kFollower && held_nothing_before) is_full_ = false;
  if (via == Via::kFirst && now >= ReplicaRole::kFollower) is_full_ = true;

  if (via == Via::kRebuilt && now == ReplicaRole::kPrimary) {
    BecomeRebuiltPrimary();
    change.is_promoted = true;
    return change;
  }
  if (is_primary_) {
    // Still primary, so streams to servers that are still members continue.
    std::erase_if(acked_, [&](const auto& acked) { return !IsCopy(entry_.RoleOf(acked.first)); });
    outgoing_.Keep(entry_);
    return change;
  }
  outgoing_.Clear();
  if (now == ReplicaRole::kPrimary) {
    incoming_.Leave();
    // A server made primary never starts without the state; the coordinator learns of this from its
    // promise.
    if (!is_full_ && via != Via::kHandedOver) return change;
    BecomePrimary();
    change.is_promoted = true;
    return change;
  }
  FollowPrimary(is_same_primary, change);
  return change;
}

void ShardMember::FollowPrimary(bool is_same_primary, Change& change) {
  const bool has_primary = role() != ReplicaRole::kNone && entry_.primary.has_value();
  if (!has_primary || !is_same_primary || !incoming_.is_joined()) {
    incoming_.Leave();
    change.must_join = has_primary;
    return;
  }
  const std::optional<StreamPosition> early = incoming_.ConfirmAnew(entry_.epoch);
  if (!early) return;
  if (role() == ReplicaRole::kFollower) is_full_ = true;
  change.late_answer = StreamAck{*early, seq_, true};
}

void ShardMember::BecomePrimary() {
  is_primary_ = true;
  is_full_ = true;
  acked_.clear();
  // This log may be ahead of the followers': nothing is published, not even an old version, before
  // they have all of it.
  for (LastEntry& last : last_entries_) last.seq = seq_;
}

// The same versions may have had different bits before, since the optimizer state has changed.
void ShardMember::BecomeRebuiltPrimary() {
  outgoing_.Clear();
  incoming_.Leave();
  ++seq_;
  BecomePrimary();
  for (LastEntry& last : last_entries_) last.epoch = entry_.epoch;
}

// ---- the primary ----

uint64_t ShardMember::Append(size_t chunk) {
  PUSHPULL_CHECK(is_primary_);
  last_entries_[chunk] = {++seq_, entry_.epoch};
  return seq_;
}

// Followers need only the chunk's last entry, not all of the log: chunks do not wait for each
// other.
bool ShardMember::MayPublish(size_t chunk) const {
  if (!is_open()) return false;
  return absl::c_all_of(entry_.followers, [&](ServerId follower) {
    const auto acked = acked_.find(follower);
    return acked != acked_.end() && acked->second >= last_entries_[chunk].seq;
  });
}

bool ShardMember::Open(ServerId member,
                       Epoch epoch,
                       uint64_t stream,
                       std::span<const ChunkStamp> theirs,
                       std::span<const ChunkStamp> ours) {
  const bool may_join = is_primary_ && epoch == entry_.epoch && IsCopy(entry_.RoleOf(member));
  if (!may_join || theirs.size() != ours.size()) return false;
  std::set<size_t> to_copy;
  for (size_t chunk = 0; chunk < ours.size(); ++chunk)
    if (ours[chunk] != theirs[chunk]) to_copy.insert(chunk);
  return outgoing_.Open(member, stream, std::move(to_copy));
}

bool ShardMember::OnAck(ServerId member, const StreamAck& ack) {
  if (!is_primary_ || !outgoing_.OnAck(member, ack.at)) return false;
  if (ack.seq && *ack.seq <= seq_) {
    uint64_t& acked = acked_[member];
    acked = std::max(acked, *ack.seq);
  }
  return true;
}

// A primary must have sent everything to the next one before it is demoted, so it first stops
// taking pushes, which ends the log.
bool ShardMember::BeginHandover(Epoch current, const ReplicaSet& next) {
  if (!is_primary_ || entry_.epoch != current || next.epoch <= current || !next.primary)
    return false;
  if (next.epoch.term < promised_) return false;
  handover_ = next;
  return true;
}

std::optional<ReplicaSet> ShardMember::HandoverDue() const {
  // A handover from an earlier coordinator must not finish; the next entry cancels it.
  if (!handover_ || !is_primary_ || handover_->epoch.term < promised_) return std::nullopt;
  const auto acked = acked_.find(*handover_->primary);
  const bool has_everything =
      acked != acked_.end() && acked->second >= seq_ && outgoing_.Contains(*handover_->primary);
  return has_everything ? handover_ : std::nullopt;
}

// ---- the other members ----

IncomingStream::Verdict ShardMember::Judge(ServerId from, StreamPosition at) const {
  const bool is_from_primary = !is_primary_ && entry_.primary == from;
  return is_from_primary ? incoming_.Judge(at) : IncomingStream::Verdict::kIgnore;
}

StreamAck ShardMember::TakeStart(uint64_t seq) {
  incoming_.Start(seq);
  return Answer(false);
}

StreamAck ShardMember::TakeCopy(size_t chunk, Epoch chunk_epoch) {
  last_entries_[chunk] = {incoming_.seq(), chunk_epoch};
  return Answer(false);
}

// While catching up, a member has entries of some chunks and no copy yet of others: its log is
// complete up to a seq only from the caught-up frame on.
StreamAck ShardMember::TakeEntry(size_t chunk, Epoch epoch, uint64_t seq) {
  incoming_.set_seq(seq);
  last_entries_[chunk] = {seq, epoch};
  if (!incoming_.is_catching_up()) seq_ = seq;
  return Answer(false);
}

std::optional<StreamAck> ShardMember::TakeCaughtUp(Epoch epoch, uint64_t seq) {
  incoming_.CatchUp();
  incoming_.set_seq(seq);
  seq_ = seq;
  // The primary has an entry that has not arrived here: whether this server is a follower under it
  // is not known yet, so the answer waits.
  if (epoch > entry_.epoch) {
    incoming_.ConfirmEarly(epoch);
    return std::nullopt;
  }
  if (epoch == entry_.epoch) {
    incoming_.Confirm();
    if (role() == ReplicaRole::kFollower) is_full_ = true;
  }
  return Answer(true);
}

StreamAck ShardMember::Answer(bool is_caught_up) {
  return {.at = incoming_.Answer(),
          .seq = incoming_.is_catching_up() ? std::nullopt : std::optional<uint64_t>(seq_),
          .is_caught_up = is_caught_up};
}

}  // namespace pushpull
