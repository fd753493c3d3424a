// SPDX-License-Identifier: Apache-2.0
//
// One virtual shard on one server: its role, how far its log is, and on the primary what every
// other member has of it (docs/protocol.md sections 1, 3 and 5). Only decides; bytes and
// connections are in server/shard_replication.h. Pure.
//
//   primary                                     follower, learner
//   Append: one entry for each chunk's step
//           <----------- Join: stamps of all chunks -----------  new primary, new connection
//   Open    ---- start, copies of chunks that differ --------->  Take, in order, or Join again
//           ---- entries of other chunks, caught up ---------->
//   Append  ---- entry --------------------------------------->  Take
//   OnAck   <--------------------- seq ------------------------
//   MayPublish: every follower has the chunk's last entry
//
// A stream survives a new entry as long as the primary stays primary and the member stays a member:
// the stream, not a frame's epoch, identifies the log. Under each entry the primary confirms every
// member again, with another caught-up frame.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/shard/shard_map.h"

namespace pushpull {

// Identifies a member's state of a chunk. Equal stamps mean equal bits; equal versions alone do
// not: a version that a primary had not published when it died may differ from its successor's
// version of the same step.
struct ChunkStamp {
  Step version;
  Epoch epoch;  // of the chunk's last log entry; 0.0 before the first
  friend bool operator==(const ChunkStamp&, const ChunkStamp&) = default;
};

// Identifies a frame of a stream from the primary to one member. Every Join begins a new stream,
// whose frames are taken in the order of their positions, so a channel may lose, repeat or reorder
// them.
struct StreamPosition {
  uint64_t stream = 0;    // chosen by the joining member; increases
  uint64_t position = 0;  // 0 is the start
};

// A member's answer to a frame of its stream.
struct StreamAck {
  StreamPosition at;
  std::optional<uint64_t> seq;  // all entries up to this one are applied; none while catching up
  bool is_caught_up = false;    // the answer to the caught-up frame
};

// The primary's streams to the other members: what each has been sent and has yet to be sent.
// Thread-compatible.
class OutgoingStreams {
 public:
  // Copies that may be in flight to one member before it has acknowledged the first.
  static constexpr size_t kCopiesUnderWayMax = 4;

  bool empty() const { return streams_.empty(); }
  bool Contains(ServerId member) const { return streams_.contains(member); }
  std::vector<ServerId> Members() const;

  // Begins the stream with copies of these chunks. False: this is an older request of the member.
  bool Open(ServerId member, uint64_t stream, std::set<size_t> to_copy);
  // The connection is gone; the member will join again.
  void Close(ServerId member) { streams_.erase(member); }
  // Ends all streams except those to members of `entry`, which are confirmed again under it.
  void Keep(const ReplicaSet& entry);
  void Clear() { streams_.clear(); }

  // The position of the next frame to a member, for an entry of `chunk`. None: the entry must not
  // be sent, because the member has no stream, or will receive a copy of the chunk that includes
  // it.
  std::optional<StreamPosition> PlaceEntry(ServerId member, size_t chunk);

  struct Frame {
    enum class Kind { kStart, kCopy, kCaughtUp };
    Kind kind = Kind::kStart;
    StreamPosition at;
    size_t chunk = 0;  // kCopy
  };
  // The frames to send to the member now, besides entries; empty while enough are in flight.
  std::vector<Frame> NextFrames(ServerId member);

  // False: it is not of the member's stream.
  bool OnAck(ServerId member, StreamPosition at);

 private:
  struct Stream {
    uint64_t number = 0;
    uint64_t next_position = 0;
    std::set<size_t> to_copy;
    std::set<uint64_t> copies_under_way;  // their positions
    bool has_caught_up_frame = false;
  };
  std::map<ServerId, Stream> streams_;
};

// A member's stream from its primary. Thread-compatible.
class IncomingStream {
 public:
  IncomingStream() = default;  // not joined
  // Begins a new stream; returns its number. Frames of an earlier one are ignored.
  uint64_t Join();
  // Gives up the stream; nothing is taken before the next Join.
  void Leave() { is_joined_ = false; }
  bool is_joined() const { return is_joined_; }
  // The primary has answered the last Join.
  bool has_started() const { return next_position_ > 0; }

  enum class Verdict { kTake, kIgnore, kJoinAgain };
  // What a frame from the primary means; each frame that is taken must be answered.
  Verdict Judge(StreamPosition at) const;
  // Copies follow; the primary's log is at `seq`.
  void Start(uint64_t seq);
  // Until the caught-up frame arrives, a copy may be behind entries of other chunks, so no entry
  // counts as applied.
  bool is_catching_up() const { return is_catching_up_; }
  void CatchUp() { is_catching_up_ = false; }
  // The seq of the primary's log when it sent the last frame.
  void set_seq(uint64_t seq) { seq_ = seq; }
  uint64_t seq() const { return seq_; }
  // The position of the frame that is to be answered now, or later.
  StreamPosition Answer() { return {number_, next_position_++}; }

  // The primary has confirmed this member under the entry in force.
  bool is_confirmed() const { return is_joined_ && is_confirmed_; }
  void Confirm() { is_confirmed_ = true; }
  // The confirmation is for an entry that has not arrived here yet. Reserves its answer's position.
  void ConfirmEarly(Epoch epoch);
  // The stream continues under another entry. Returns the position to answer now if that entry was
  // confirmed early.
  std::optional<StreamPosition> ConfirmAnew(Epoch epoch);

 private:
  explicit IncomingStream(uint64_t number) : is_joined_(true), number_(number) {}

  bool is_joined_ = false;
  uint64_t number_ = 0;
  uint64_t next_position_ = 0;
  uint64_t seq_ = 0;
  bool is_catching_up_ = false;
  bool is_confirmed_ = false;
  Epoch early_epoch_;
  StreamPosition early_at_;
};

// Thread-compatible. Chunks are named by their index among the shard's chunks.
class ShardMember {
 public:
  ShardMember(ServerId self, size_t num_chunks) : self_(self), last_entries_(num_chunks) {}

  const ReplicaSet& entry() const { return entry_; }
  ReplicaRole role() const { return entry_.RoleOf(self_); }
  // It holds everything that was published, so it may become primary.
  bool is_full() const { return is_full_; }
  uint64_t seq() const { return seq_; }
  // Epoch of the chunk's last log entry.
  Epoch chunk_epoch(size_t chunk) const { return last_entries_[chunk].epoch; }

  // How an entry arrived.
  enum class Via {
    kCoordinator,
    kFirst,       // the shard's first entry: there is no state that a member could lack
    kHandedOver,  // the previous primary has sent everything
    kRebuilt,     // no member was left; every chunk was set to a worker's or checkpoint's copy
  };
  struct Change {
    bool is_taken = false;     // its epoch was higher: it is in force
    bool is_promoted = false;  // this member is primary from now on
    bool is_demoted = false;   // it is no longer primary
    bool must_join = false;    // it must join the primary's stream
    // The answer to a caught-up frame that arrived before its entry.
    std::optional<StreamAck> late_answer;
  };
  Change Install(const ReplicaSet& entry, Via via);
  // A coordinator with this term is in charge: entries of a lower term, including those of
  // handovers in progress, are refused from now on. Never lowered.
  void Promise(Term term) { promised_ = std::max(promised_, term); }

  // ---- the primary ----

  bool is_primary() const { return is_primary_; }
  bool is_handing_over() const { return handover_.has_value(); }
  // Pushes are taken.
  bool is_open() const { return is_primary_ && !handover_; }

  // Appends the chunk's next entry to the log; returns its number. is_primary() must hold.
  uint64_t Append(size_t chunk);
  // The version made by the chunk's last entry may be published: every follower has it.
  bool MayPublish(size_t chunk) const;

  // A member joins: from now on it receives entries. False: it is under another entry, or this is
  // an older request; it will ask again. `theirs` and `ours` are the stamps of all chunks.
  bool Open(ServerId member,
            Epoch epoch,
            uint64_t stream,
            std::span<const ChunkStamp> theirs,
            std::span<const ChunkStamp> ours);
  OutgoingStreams& outgoing() { return outgoing_; }
  // False: the acknowledgement is not for the member's stream. True with is_caught_up: notify the
  // coordinator.
  bool OnAck(ServerId member, const StreamAck& ack);

  // Stops pushes and publications until `next` is in force. False: `current` is not in force here.
  bool BeginHandover(Epoch current, const ReplicaSet& next);
  // The entry to install now, because its primary has everything; none: not yet.
  std::optional<ReplicaSet> HandoverDue() const;

  // ---- the other members ----

  IncomingStream& incoming() { return incoming_; }
  const IncomingStream& incoming() const { return incoming_; }
  // What a frame of the stream from `from` means; kTake must be followed by one of the calls below.
  IncomingStream::Verdict Judge(ServerId from, StreamPosition at) const;
  // `seq`: the primary's at that moment.
  StreamAck TakeStart(uint64_t seq);
  StreamAck TakeCopy(size_t chunk, Epoch chunk_epoch);
  StreamAck TakeEntry(size_t chunk, Epoch epoch, uint64_t seq);
  // None: the frame is for an entry that has not arrived yet; answered when that arrives.
  std::optional<StreamAck> TakeCaughtUp(Epoch epoch, uint64_t seq);

 private:
  struct LastEntry {
    uint64_t seq = 0;
    Epoch epoch;
  };

  void BecomePrimary();
  void BecomeRebuiltPrimary();
  void FollowPrimary(bool is_same_primary, Change& change);
  StreamAck Answer(bool is_caught_up);

  const ServerId self_;
  Term promised_;
  ReplicaSet entry_;
  uint64_t seq_ = 0;
  bool is_full_ = false;
  std::vector<LastEntry> last_entries_;  // by chunk

  bool is_primary_ = false;
  OutgoingStreams outgoing_;
  std::map<ServerId, uint64_t> acked_;  // highest seq of each member, since this one became primary
  std::optional<ReplicaSet> handover_;

  IncomingStream incoming_;
};

}  // namespace pushpull
