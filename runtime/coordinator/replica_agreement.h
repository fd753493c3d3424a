// SPDX-License-Identifier: Apache-2.0
//
// Decides which servers hold which shard, and how that changes: failover, replacement of dead
// members, and moves, all through entries with rising epochs (docs/protocol.md section 5). Every
// elastic operation sets a new target; this file decides on the entries that lead there, one at a
// time for each shard:
//
//   steady --1 member lost--> entry without it
//   steady --2 primary lost--> entry without primary --all live members promised--> the longest log
//          among the full is primary; none full: lost
//   steady --3 member missing--> learner --caught up--> follower --confirmed--> steady
//   steady --4 other primary planned--> handover --HandedOver--> steady
//   steady --5 surplus member--> entry without it
//
// 1 Dead followers and learners are removed without asking.
// 2 Also if a primary reports that it is not full, or the source or target of a handover dies. Dead
//   members stay listed: their state still counts if they return with it.
// 3 As many at a time as moves_per_server allows. A learner does not count as a copy, a follower
//   only once its primary has confirmed it under the entry in force: each new entry requires new
//   confirmations.
// 4 Only to a confirmed follower. The entry goes to the source alone, and to all after HandedOver.
// 5 Only when all planned followers are present and confirmed, and as many as requested.
//
// A lost shard is rebuilt under an entry that goes to its new primary alone, and to all once the
// primary has the workers' copies. Until then a full member that returns becomes primary instead.
//
// runtime/shard/rebalance.h plans which servers should hold each shard, in several racks if there
// are several. Planning is repeated whenever a server joins, leaves or dies, and when the failovers
// that follow are over. Shards without chunks have no state and no entry. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/shard/rebalance.h"
#include "runtime/shard/shard_map.h"

namespace pushpull {

struct ReplicaOptions {
  Term term{1};
  uint32_t replication = 0;     // followers per shard, if there are enough servers
  size_t moves_per_server = 4;  // shards copied to or from one server at once; at least 1
  // Lost shards are part of the plan, because Rebuild will be called for them.
  bool rebuilds = false;
};

// What the caller must send after a change, in this order.
struct ReplicaChange {
  std::vector<std::pair<ShardId, ReplicaSet>> entries;   // to every server and worker
  std::vector<std::pair<ServerId, Handover>> handovers;  // each to that server
  std::vector<ShardId> lost;                             // no live member holds their state
};

// The servers that shards are planned on: those that are present and part of the target, with their
// weights. Thread-compatible.
class ReplicaTargets {
 public:
  // A weight that is not finite counts as 0: the server holds nothing.
  void Add(ServerId server, double weight, std::string rack = {});
  void Remove(ServerId server) { present_.erase(server); }
  void Set(const std::set<ServerId>& target) { target_ = target; }

  bool IsPresent(ServerId server) const { return present_.contains(server); }
  // Empty: unknown, or the server is not present.
  absl::string_view RackOf(ServerId server) const;
  std::vector<TargetServer> Servers() const;
  // The number of followers of each shard once the whole target is present. Until then surplus
  // members are kept, because they may be the only ones besides the primary.
  size_t NumFollowers(uint32_t replication) const;

 private:
  struct Server {
    double weight = 1;
    std::string rack;
  };
  std::map<ServerId, Server> present_;
  std::optional<std::set<ServerId>> target_;  // none: every server present
};

// The election of a shard's next primary, after the entry without a primary has been sent to all
// servers. Every live member promises to accept nothing older and reports how long its log is; of
// the members that hold everything published, the one with the longest log wins. Thread-compatible.
class ShardFailover {
 public:
  void OnPromise(ServerId member, const Promise& promise) { promises_[member] = promise; }
  // The member's process died: its successor has to promise again.
  void Forget(ServerId member) { promises_.erase(member); }
  bool HasPromised(ServerId member) const { return promises_.contains(member); }

  // The members of the next entry, without its epoch, as soon as every live member of `entry` has
  // promised. Has no primary if none of them is full, which is reported once: the shard is then
  // lost until a full member returns or the shard is rebuilt. Among logs of equal length
  // `preferred` wins.
  std::optional<ReplicaSet> Elect(const ReplicaSet& entry,
                                  absl::FunctionRef<bool(ServerId)> is_live,
                                  std::optional<ServerId> preferred);
  bool is_lost() const { return is_lost_; }

  // The entry under which the next primary of a lost shard was told to rebuild it; no other server
  // has it.
  const std::optional<ReplicaSet>& rebuilt() const { return rebuilt_; }
  void SetRebuilt(const ReplicaSet& entry) { rebuilt_ = entry; }

 private:
  std::map<ServerId, Promise> promises_;
  bool is_lost_ = false;
  std::optional<ReplicaSet> rebuilt_;
};

// Limits how many shards are copied to or from one server at a time. Thread-compatible.
class CopySlots {
 public:
  explicit CopySlots(size_t per_server) : per_server_(per_server) {}

  // While an entry is in force, its learners copy the shard from its primary. Each entry passed to
  // `Take` must later be passed to `Give`.
  void Take(const ReplicaSet& entry) { Count(entry, true); }
  void Give(const ReplicaSet& entry) { Count(entry, false); }
  bool IsFree(ServerId server) const {
    const auto used = used_.find(server);
    return used == used_.end() || used->second < per_server_;
  }
  // Whether a slot was given back since the last call.
  bool TakeFreed() { return std::exchange(was_freed_, false); }

 private:
  void Count(const ReplicaSet& entry, bool is_taken) {
    if (!entry.primary || entry.learners.empty()) return;  // without primary nobody sends
    const auto count = [&](ServerId server) { is_taken ? ++used_[server] : --used_[server]; };
    count(*entry.primary);
    for (const ServerId learner : entry.learners) count(learner);
    was_freed_ = was_freed_ || !is_taken;
  }

  const size_t per_server_;
  std::map<ServerId, size_t> used_;
  bool was_freed_ = false;
};

// Thread-compatible.
class ReplicaAgreement {
 public:
  explicit ReplicaAgreement(ReplicaOptions options)
      : options_(options), slots_(options.moves_per_server) {}

  // A server has registered. It holds nothing: an earlier process under this index died before, and
  // LoseServer was called for it. `weight` is its share of the parameters relative to others.
  // `rack`: empty if unknown.
  ReplicaChange AddServer(ServerId server, double weight, std::string rack = {});
  ReplicaChange LoseServer(ServerId server);

  // The first entries: shard, bytes of its chunks, and primary, which must be present. Followers
  // are chosen here. To be called once.
  struct FirstEntry {
    ShardId shard;
    uint64_t bytes = 0;
    ServerId primary;
  };
  ReplicaChange Place(const std::vector<FirstEntry>& entries);

  // The entries of an earlier coordinator, the newest of each shard; to be called once, instead of
  // Place. All are issued again without a primary, which cancels what was under way, and the member
  // that is present with the longest log becomes primary. Add the servers and set the target first.
  struct EarlierEntry {
    ShardId shard;
    uint64_t bytes = 0;
    ReplicaSet entry;
  };
  ReplicaChange Restore(const std::vector<EarlierEntry>& entries);

  // From now on these servers, and no others, should hold the shards, in proportion to their
  // weights; those not yet present count once they are added. May be called at any time, even while
  // an earlier target is being approached: unneeded changes are reverted, except for a handover
  // under way, which finishes first. Before the first call the target is every server present.
  // While no server of the target is present, nothing moves; while some are missing, members
  // outside of it stay if there would be fewer followers than requested.
  ReplicaChange SetTarget(const std::set<ServerId>& servers);

  // The shard is lost: no live member is full.
  bool is_lost(ShardId shard) const;
  // The server has reported its state of the lost shard.
  bool HasPromised(ShardId shard, ServerId server) const;
  // The entry under which a server becomes primary of a lost shard once it has rebuilt it. Replaces
  // the entry of an earlier call, and is in force after OnRebuilt. None: no server can take the
  // shard.
  std::optional<ReplicaSet> Rebuild(ShardId shard);
  ReplicaChange OnRebuilt(ShardId shard, const ReplicaSet& entry);

  // Reports from servers. Reports about earlier epochs or shards without an entry, and those from
  // servers that are not present, are ignored.
  ReplicaChange OnPromise(ServerId server, const Promise& promise);
  ReplicaChange OnCaughtUp(const CaughtUp& message);
  ReplicaChange OnHandedOver(const HandedOver& message);

  // By shard; shards without chunks are not in it.
  const std::map<ShardId, ReplicaSet>& table() const { return table_; }
  // The highest epoch issued.
  Epoch epoch() const { return {options_.term, counter_}; }
  // The number of shards whose members are not yet, or not yet confirmed to be, those that target
  // and replication require.
  size_t shards_moving() const;
  // The number of shards that have followers, all of them in the primary's rack, which is known.
  size_t shards_in_one_rack() const;
  // Every shard has a primary: no failover is under way, and no shard is lost.
  bool HasEveryPrimary() const;
  // The server is in no entry: it may be released.
  bool is_drained(ServerId server) const;

 private:
  // The servers that should hold the shard.
  struct Wanted {
    std::optional<ServerId> primary;
    std::vector<ServerId> followers;
  };
  struct Shard {
    uint64_t bytes = 0;
    Wanted wanted;
    std::set<ServerId> confirmed;  // by the primary, under the entry in force
    // Members that died under the entry in force. If one is present again, it is another process.
    std::set<ServerId> departed;
    bool is_primary_empty = false;  // as it promised
    std::optional<ShardFailover> failover;
    std::optional<ReplicaSet> handover;  // the entry that was sent to the source
  };
  // Shards with too few members get their learners before shards that merely move.
  enum class Urgency { kRepair, kMove };

  Epoch NextEpoch() { return {options_.term, ++counter_}; }
  bool IsLive(const Shard& shard, ServerId member) const;
  ShardHolders Holders(ShardId id, const Shard& shard) const;
  void Plan();

  // These advance shards as far as possible without another message.
  void Settle();
  ReplicaChange Replan();
  ReplicaChange SettleOne(ShardId id, Shard& shard);
  bool Advance(ShardId id, Shard& shard, Urgency urgency);
  void StartFailover(ShardId id, Shard& shard);
  bool FinishFailover(ShardId id, Shard& shard);
  ReplicaSet NextMembers(const ReplicaSet& entry, const Shard& shard, Urgency urgency) const;
  void AddLearners(const Shard& shard, Urgency urgency, ReplicaSet& next) const;
  bool MayHandOver(const ReplicaSet& entry, const Shard& shard) const;
  void StartHandover(ShardId id, Shard& shard);
  void Install(ShardId id, Shard& shard, ReplicaSet entry);
  void TakeOver(ShardId id, const ReplicaSet& entry);
  bool IsSettled(const ReplicaSet& entry, const Shard& shard) const;

  const ReplicaOptions options_;
  uint64_t counter_ = 0;  // of the highest epoch issued
  ReplicaTargets targets_;
  CopySlots slots_;
  std::map<ShardId, ReplicaSet> table_;
  std::map<ShardId, Shard> shards_;  // the same shards
  bool is_plan_due_ = false;
  ReplicaChange change_;  // by the call under way
};

}  // namespace pushpull
