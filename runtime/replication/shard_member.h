// SPDX-License-Identifier: Apache-2.0
//
// One virtual shard on one server: which role it has there, how far its log is, and on the primary
// what every other member has of it (protocol.md sections 1, 3 and 5). Decides only; whose bytes
// they are, and how they travel, is the lane's business (server/shard_replication.h). Pure.
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
// A stream outlives a new entry as long as the primary goes on to reign and the member stays one:
// it is the stream, and not the epoch of a frame, that says whose log it is. Under each entry the
// primary confirms each member anew, with one more caught-up frame.
#pragma once

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

// What a member has of a chunk. Equal stamps mean equal bits; equal versions alone do not: what a
// primary had not published when it died may differ from what its successor made of that step.
struct ChunkStamp {
  Step version;
  Epoch epoch;  // of the chunk's last log entry; 0.0 before the first
  friend bool operator==(const ChunkStamp&, const ChunkStamp&) = default;
};

// Names a frame of a stream from the primary to one member. A stream begins with every Join and its
// frames are taken in the order of their positions, so a channel may lose, repeat or reorder them.
struct StreamPosition {
  uint64_t stream = 0;    // chosen by the joining member, rising
  uint64_t position = 0;  // 0 is the start
};

// A member's answer to a frame of its stream.
struct StreamAck {
  StreamPosition at;
  std::optional<uint64_t> seq;  // all entries up to this one are applied; none while catching up
  bool is_caught_up = false;    // the answer to the caught-up frame
};

// Thread-compatible. Chunks are named by their index among the shard's chunks.
class ShardMember {
 public:
  // Copies that may be under way to one member before it has acknowledged the first.
  static constexpr size_t kCopiesUnderWayMax = 4;

  ShardMember(ServerId self, size_t num_chunks) : self_(self), last_entries_(num_chunks) {}

  const ReplicaSet& entry() const { return entry_; }
  ReplicaRole role() const { return entry_.RoleOf(self_); }
  // It holds everything that was published, so it may become primary.
  bool is_full() const { return is_full_; }
  uint64_t seq() const { return seq_; }
  // Epoch of the chunk's last log entry.
  Epoch chunk_epoch(size_t chunk) const { return last_entries_[chunk].epoch; }

  // How an entry came.
  enum class Via {
    kCoordinator,
    kFirst,       // the shard's first entry: there is no state that a member could lack
    kHandedOver,  // the primary before has given everything
    kRebuilt,     // nobody was left; every chunk was set to what the workers have
  };
  struct Change {
    bool is_taken = false;   // its epoch was higher: it is in force
    bool has_begun = false;  // this member reigns from now on
    bool has_ended = false;  // it reigned and does not any more
    bool must_join = false;  // Join the primary's stream
    // The answer to a caught-up frame that had come before its entry.
    std::optional<StreamAck> late_answer;
  };
  Change Install(const ReplicaSet& entry, Via via);
  // A coordinator of this term is in charge: entries of a lower one, also those of handovers under
  // way, are refused from now on. Never lowered.
  void Promise(Term term);

  // ---- the primary ----

  bool reigns() const { return reigns_; }
  bool is_handing_over() const { return handover_.has_value(); }
  // Pushes are taken.
  bool is_open() const { return reigns_ && !handover_; }

  // Enters the chunk's next entry into the log; returns its number. reigns() must hold.
  uint64_t Append(size_t chunk);
  // The version that the last entry made may be published: every follower has it.
  bool MayPublish(size_t chunk) const;

  // A member wants the log: from now on it gets entries. False: not under this entry, or an older
  // request of it; it will ask again. `theirs` and `ours` are the stamps of all chunks.
  bool Open(ServerId member,
            Epoch epoch,
            uint64_t stream,
            std::span<const ChunkStamp> theirs,
            std::span<const ChunkStamp> ours);
  // The place of the next frame to a member, for an entry of `chunk`. None: it is not to be sent,
  // because the member has no stream, or gets a copy of the chunk that has the entry in it.
  std::optional<StreamPosition> PlaceEntry(ServerId member, size_t chunk);
  // Members with a stream.
  std::vector<ServerId> Streams() const;
  // The connection is gone; the member will join again.
  void Close(ServerId member) { outgoing_.erase(member); }

  struct StreamFrame {
    enum class Kind { kStart, kCopy, kCaughtUp };
    Kind kind = Kind::kStart;
    StreamPosition at;
    size_t chunk = 0;  // kCopy
  };
  // What is to be sent to the member now beside entries; empty while enough is under way.
  std::vector<StreamFrame> NextFrames(ServerId member);

  // False: it is not of the member's stream. True with is_caught_up: the coordinator must be told.
  bool OnAck(ServerId member, const StreamAck& ack);

  // Stops pushes and publications until `next` is in force. False: `current` is not in force here.
  bool BeginHandover(Epoch current, const ReplicaSet& next);
  // The entry to install now: its primary has everything.
  std::optional<ReplicaSet> HandoverDue() const;

  // ---- the other members ----

  // Begins a new stream; returns its number. What comes on an earlier one is ignored.
  uint64_t Join();
  // The primary has answered the last Join.
  bool has_started() const { return incoming_.next_position > 0; }
  // The primary has confirmed this member under the entry in force.
  bool is_confirmed() const { return incoming_.is_joined && incoming_.is_confirmed; }
  // Gives up the stream; nothing is taken before the next Join.
  void Refuse() { incoming_.is_joined = false; }
  bool is_joined() const { return incoming_.is_joined; }

  enum class Verdict { kTake, kIgnore, kJoinAgain };
  // What a frame of the primary's stream means; kTake has to be followed by one of the three below.
  Verdict Judge(ServerId from, StreamPosition at) const;
  // `seq` is the primary's at that moment.
  StreamAck TakeStart(uint64_t seq);
  StreamAck TakeCopy(size_t chunk, Epoch chunk_epoch);
  StreamAck TakeEntry(size_t chunk, Epoch epoch, uint64_t seq);
  // None: the frame is of an entry that has not come here yet; answered when it does.
  std::optional<StreamAck> TakeCaughtUp(Epoch epoch, uint64_t seq);

 private:
  struct LastEntry {
    uint64_t seq = 0;
    Epoch epoch;
  };
  // What the primary knows of a member.
  struct Outgoing {
    uint64_t stream = 0;
    uint64_t next_position = 0;
    std::set<size_t> to_copy;
    std::set<uint64_t> copies_under_way;  // their positions
    bool has_caught_up_frame = false;
  };
  struct Incoming {
    bool is_joined = false;
    uint64_t stream = 0;
    uint64_t next_position = 0;
    uint64_t seq = 0;  // of the last entry on this stream
    bool is_catching_up = false;
    bool is_confirmed = false;
    // A caught-up frame of an entry that is still to come.
    Epoch early_epoch;
    StreamPosition early_at;
  };

  void Begin();
  void BeginRebuilt();
  void KeepStreams();
  void FollowPrimary(bool is_same_primary, Change& change);
  StreamAck Answer(bool is_caught_up);

  const ServerId self_;
  Term promised_;
  ReplicaSet entry_;
  uint64_t seq_ = 0;
  bool is_full_ = false;
  std::vector<LastEntry> last_entries_;  // by chunk

  bool reigns_ = false;
  std::map<ServerId, Outgoing> outgoing_;
  std::map<ServerId, uint64_t> acked_;  // highest entry each member has; of this reign
  std::optional<ReplicaSet> handover_;

  Incoming incoming_;
};

}  // namespace pushpull
