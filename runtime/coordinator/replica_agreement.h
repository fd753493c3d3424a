// SPDX-License-Identifier: Apache-2.0
//
// Who holds which shard, and how that changes: failover, replacement of what died, and moves to
// other servers, all by entries of rising epochs (protocol.md section 5). Every elastic operation
// is a new target; what leads there, one entry of a shard at a time, is decided here:
//
//   steady --1 member lost--> entry without it
//   steady --2 primary lost--> entry without primary --all live members promised--> the longest log
//          among the full is primary; none full: lost
//   steady --3 member missing--> learner --caught up--> follower --confirmed--> steady
//   steady --4 other primary wanted--> handover --HandedOver--> steady
//   steady --5 surplus member--> entry without it
//
// 1 Dead followers and learners; nobody is asked.
// 2 Also when a primary says that it is not full, or the source or target of a handover dies. The
//   dead stay listed, so that their state still counts should they return with it.
// 3 As many at a time as moves_per_server allows. A learner counts for nothing, and a follower only
//   where its primary has confirmed it under the entry in force: each entry starts that anew.
// 4 Only to a confirmed follower. Its entry is told to the source alone, and to all after
//   HandedOver.
// 5 Only when all wanted followers are there and confirmed, and as many as were asked for.
//
// 6 Its entry is told to the new primary alone, and to all when that has been given what the
// workers
//   have of the shard. Until then a full member that returns counts.
//
// Who is wanted where is runtime/shard/rebalance.h, asked again whenever a server comes, goes or
// dies, and when the failovers after that are done. Shards without chunks have no state and no
// entry. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/shard/rebalance.h"
#include "runtime/shard/shard_map.h"

namespace pushpull {

struct ReplicaOptions {
  Term term{1};
  uint32_t replication = 0;     // followers each shard shall have, as far as there are servers
  size_t moves_per_server = 4;  // shards copied to or from one server at once; at least 1
  // Lost shards have a place in the plan, since Rebuild will be called for them.
  bool rebuilds = false;
};

// What must be sent after a change, in this order.
struct ReplicaChange {
  std::vector<std::pair<ShardId, ReplicaSet>> entries;   // to every server and worker
  std::vector<std::pair<ServerId, Handover>> handovers;  // each to that server
  std::vector<ShardId> lost;  // no member that holds their state is alive
};

// Thread-compatible.
class ReplicaAgreement {
 public:
  explicit ReplicaAgreement(ReplicaOptions options) : options_(options) {}

  // A server is there. It holds nothing: what it may have held under this name died before, and
  // LoseServer was called for it. `weight` is its share of the parameters relative to others.
  ReplicaChange AddServer(ServerId server, double weight);
  ReplicaChange LoseServer(ServerId server);

  // The first entries: shard, bytes of its chunks, primary, which must be there. Followers are
  // chosen here. Once.
  struct FirstEntry {
    ShardId shard;
    uint64_t bytes = 0;
    ServerId primary;
  };
  ReplicaChange Place(const std::vector<FirstEntry>& entries);

  // The entries of an earlier coordinator, the newest of each shard, once, and instead of Place:
  // all are given out anew without primary, which cancels what was under way, and whoever is there
  // and has the longest log becomes primary. Add the servers and set the target before.
  struct EarlierEntry {
    ShardId shard;
    uint64_t bytes = 0;
    ReplicaSet entry;
  };
  ReplicaChange Restore(const std::vector<EarlierEntry>& entries);

  // From now on these servers shall hold the shards, in proportion to their weights, and no other;
  // servers of the target that are not there yet count when they are added. May be called at any
  // time, also while an earlier target is being reached: what is not needed any more is taken back,
  // except for a handover under way, which ends first. Before the first call the target is whoever
  // is there; while nobody of the target is there, everything stays where it is, and while a part
  // of it is missing, members outside of it stay if there would be fewer followers than asked for.
  ReplicaChange SetTarget(const std::set<ServerId>& servers);

  // The shard is lost: no live member is full.
  bool is_lost(ShardId shard) const;
  // The server has said what it has of the lost shard.
  bool HasPromised(ShardId shard, ServerId server) const;
  // The entry under which somebody may reign over a lost shard when he has been given its state; it
  // takes the place of one that was given out before, and is in force after OnRebuilt. None: nobody
  // is there who could.
  std::optional<ReplicaSet> Rebuild(ShardId shard);
  ReplicaChange OnRebuilt(ShardId shard, const ReplicaSet& entry);

  // What servers say. Words about earlier epochs, shards without entry and from servers that are
  // not there change nothing.
  ReplicaChange OnPromise(ServerId server, const Promise& promise);
  ReplicaChange OnCaughtUp(const MemberCaughtUp& message);
  ReplicaChange OnHandedOver(const HandedOver& message);

  // By shard; a shard that is not in it has no chunks.
  const std::map<ShardId, ReplicaSet>& table() const { return table_; }
  // Highest epoch given out.
  Epoch epoch() const;
  // Shards whose members are not yet, or not yet confirmed to be, what target and replication ask
  // for.
  size_t shards_moving() const;
  // The server is in no entry: it may go.
  bool is_drained(ServerId server) const;

 private:
  // Promises that came for the entry without primary.
  struct Failover {
    std::map<ServerId, Promise> promises;
    bool is_lost = false;               // all live members have promised, and none of them is full
    std::optional<ReplicaSet> rebuilt;  // the entry that its next primary alone was told
  };
  // Who is to hold the shard.
  struct Wanted {
    std::optional<ServerId> primary;
    std::vector<ServerId> followers;
  };
  struct Shard {
    uint64_t bytes = 0;
    Wanted wanted;
    std::set<ServerId> confirmed;  // by the primary, under the entry in force
    // Members that died under the entry in force. One that is there again is another process.
    std::set<ServerId> departed;
    bool is_primary_empty = false;  // by its own promise
    std::optional<Failover> failover;
    std::optional<ReplicaSet> handover;  // the entry that the source was told
  };
  // Shards that have too few members get their learners before shards that merely move.
  enum class Urgency { kRepair, kMove };

  Epoch NextEpoch();
  bool IsThere(ServerId server) const { return weights_.contains(server); }
  bool IsLive(const Shard& shard, ServerId member) const;
  std::vector<TargetServer> Targets() const;
  size_t NumFollowersAsked() const;
  ShardHolders Holders(ShardId id, const Shard& shard) const;
  void Plan();

  // Takes shards as far as they can go without another word from anybody.
  void Settle(ReplicaChange& change);
  void SettleOne(ShardId id, Shard& shard, ReplicaChange& change);
  bool Advance(ShardId id, Shard& shard, Urgency urgency, ReplicaChange& change);
  void StartFailover(ShardId id, Shard& shard, ReplicaChange& change);
  bool FinishFailover(ShardId id, Shard& shard, ReplicaChange& change);
  ReplicaSet NextMembers(const ReplicaSet& entry, const Shard& shard, Urgency urgency) const;
  void AddLearners(const Shard& shard, Urgency urgency, ReplicaSet& next) const;
  bool MayHandOver(const ReplicaSet& entry, const Shard& shard) const;
  void StartHandover(ShardId id, Shard& shard, ReplicaChange& change);
  void Install(ShardId id, Shard& shard, ReplicaSet entry, ReplicaChange& change);
  void TakeOver(ShardId id, const ReplicaSet& entry, ReplicaChange& change);
  void CountCopies(const ReplicaSet& entry, int difference);
  bool IsSettled(const ReplicaSet& entry, const Shard& shard) const;

  const ReplicaOptions options_;
  uint64_t counter_ = 0;                      // of the highest epoch given out
  std::map<ServerId, double> weights_;        // of the servers that are there
  std::optional<std::set<ServerId>> target_;  // nothing: whoever is there
  std::map<ShardId, ReplicaSet> table_;
  std::map<ShardId, Shard> shards_;    // the same shards
  std::map<ServerId, size_t> copies_;  // shards being copied to or from the server
  bool is_plan_due_ = false;
  bool has_free_slot_ = false;  // since all shards were last visited
};

}  // namespace pushpull
