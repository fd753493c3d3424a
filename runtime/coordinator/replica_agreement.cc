// SPDX-License-Identifier: Apache-2.0
//
// One shard at a time, from one entry to the next; see replica_agreement.h.
#include "runtime/coordinator/replica_agreement.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace pushpull {
namespace {

bool Contains(const std::vector<ServerId>& servers, ServerId server) {
  return std::find(servers.begin(), servers.end(), server) != servers.end();
}

bool IsMember(const ReplicaSet& entry, ServerId server) {
  return entry.RoleOf(server) != ReplicaRole::kNone;
}

}  // namespace

// ---- What happens ----

ReplicaChange ReplicaAgreement::AddServer(ServerId server, double weight) {
  weights_[server] = std::isfinite(weight) ? weight : 0;
  is_plan_due_ = true;
  ReplicaChange change;
  Settle(change);
  return change;
}

ReplicaChange ReplicaAgreement::LoseServer(ServerId server) {
  weights_.erase(server);
  for (auto& [id, shard] : shards_) {
    if (!IsMember(table_.at(id), server)) continue;
    shard.departed.insert(server);
    shard.confirmed.erase(server);
    if (shard.failover) shard.failover->promises.erase(server);
  }
  is_plan_due_ = true;
  ReplicaChange change;
  Settle(change);
  return change;
}

ReplicaChange ReplicaAgreement::Place(const std::vector<FirstEntry>& entries) {
  std::vector<ShardHolders> holders;
  std::vector<ServerId> primaries;
  for (const FirstEntry& entry : entries) {
    holders.push_back({entry.bytes, entry.primary});
    primaries.push_back(entry.primary);
  }
  const std::vector<TargetServer> targets = Targets();
  std::vector<std::vector<ServerId>> followers(entries.size());
  if (!targets.empty()) {
    followers = PlanFollowers(holders, primaries, targets, options_.replication);
  }
  ReplicaChange change;
  for (size_t i = 0; i < entries.size(); ++i) {
    const FirstEntry& entry = entries[i];
    Shard& shard = shards_[entry.shard];
    shard.bytes = entry.bytes;
    shard.wanted = {entry.primary, followers[i]};
    table_[entry.shard] = {};
    Install(entry.shard, shard, {NextEpoch(), entry.primary, followers[i]}, change);
  }
  return change;
}

ReplicaChange ReplicaAgreement::Restore(const std::vector<EarlierEntry>& entries) {
  ReplicaChange change;
  for (const EarlierEntry& earlier : entries) {
    Shard& shard = shards_[earlier.shard];
    shard.bytes = earlier.bytes;
    table_[earlier.shard] = earlier.entry;
    CountCopies(earlier.entry, 1);
    StartFailover(earlier.shard, shard, change);
  }
  is_plan_due_ = true;
  Settle(change);
  return change;
}

ReplicaChange ReplicaAgreement::SetTarget(const std::set<ServerId>& servers) {
  target_ = servers;
  is_plan_due_ = true;
  ReplicaChange change;
  Settle(change);
  return change;
}

ReplicaChange ReplicaAgreement::OnPromise(ServerId server, const Promise& promise) {
  ReplicaChange change;
  const auto found = shards_.find(promise.shard);
  if (found == shards_.end() || !IsThere(server)) return change;
  Shard& shard = found->second;
  const ReplicaSet& entry = table_.at(promise.shard);
  if (promise.entry.epoch > entry.epoch) {
    TakeOver(promise.shard, promise.entry, change);
  } else if (promise.entry.epoch == entry.epoch) {
    if (shard.failover) shard.failover->promises[server] = promise;
    if (entry.primary == server && !promise.is_full && !shard.handover) {
      shard.is_primary_empty = true;
    }
  }
  SettleOne(promise.shard, shard, change);
  return change;
}

ReplicaChange ReplicaAgreement::OnCaughtUp(const MemberCaughtUp& message) {
  ReplicaChange change;
  const auto found = shards_.find(message.shard);
  if (found == shards_.end()) return change;
  Shard& shard = found->second;
  const ReplicaSet& entry = table_.at(message.shard);
  if (message.epoch != entry.epoch || !IsMember(entry, message.member)) return change;
  if (!IsLive(shard, message.member)) return change;
  shard.confirmed.insert(message.member);
  SettleOne(message.shard, shard, change);
  return change;
}

ReplicaChange ReplicaAgreement::OnHandedOver(const HandedOver& message) {
  ReplicaChange change;
  const auto found = shards_.find(message.shard);
  if (found == shards_.end()) return change;
  TakeOver(message.shard, message.entry, change);
  SettleOne(message.shard, found->second, change);
  return change;
}

bool ReplicaAgreement::is_lost(ShardId shard) const {
  const auto found = shards_.find(shard);
  return found != shards_.end() && found->second.failover && found->second.failover->is_lost;
}

bool ReplicaAgreement::HasPromised(ShardId shard, ServerId server) const {
  return is_lost(shard) && shards_.at(shard).failover->promises.contains(server);
}

std::optional<ReplicaSet> ReplicaAgreement::Rebuild(ShardId id) {
  if (!is_lost(id)) return std::nullopt;
  Shard& shard = shards_.at(id);
  const std::optional<ServerId> primary = shard.wanted.primary;
  if (!primary || !IsThere(*primary)) return std::nullopt;
  shard.failover->rebuilt = ReplicaSet{NextEpoch(), primary};
  return shard.failover->rebuilt;
}

ReplicaChange ReplicaAgreement::OnRebuilt(ShardId id, const ReplicaSet& entry) {
  ReplicaChange change;
  if (!is_lost(id)) return change;
  TakeOver(id, entry, change);
  SettleOne(id, shards_.at(id), change);
  return change;
}

// ---- What is so ----

Epoch ReplicaAgreement::epoch() const {
  return {options_.term, counter_};
}

size_t ReplicaAgreement::shards_moving() const {
  return static_cast<size_t>(std::count_if(shards_.begin(), shards_.end(), [&](const auto& shard) {
    return !IsSettled(table_.at(shard.first), shard.second);
  }));
}

bool ReplicaAgreement::is_drained(ServerId server) const {
  return std::none_of(table_.begin(), table_.end(), [&](const auto& entry) {
    return IsMember(entry.second, server);
  });
}

bool ReplicaAgreement::IsSettled(const ReplicaSet& entry, const Shard& shard) const {
  return entry.primary && entry.primary == shard.wanted.primary && !shard.handover &&
         entry.followers == shard.wanted.followers && entry.learners.empty() &&
         std::all_of(entry.followers.begin(), entry.followers.end(), [&](ServerId follower) {
           return shard.confirmed.contains(follower);
         });
}

bool ReplicaAgreement::IsLive(const Shard& shard, ServerId member) const {
  return IsThere(member) && !shard.departed.contains(member);
}

Epoch ReplicaAgreement::NextEpoch() {
  return {options_.term, ++counter_};
}

// ---- Who is wanted where ----

std::vector<TargetServer> ReplicaAgreement::Targets() const {
  std::vector<TargetServer> targets;
  for (const auto& [server, weight] : weights_) {
    if (weight > 0 && (!target_ || target_->contains(server))) targets.push_back({server, weight});
  }
  return targets;
}

// Of each shard once the whole target is there. Until then surplus members are kept: they may be
// the only ones beside the primary.
size_t ReplicaAgreement::NumFollowersAsked() const {
  if (!target_) return 0;
  const auto num_servers = std::count_if(target_->begin(), target_->end(), [&](ServerId server) {
    const auto found = weights_.find(server);
    return found == weights_.end() || found->second > 0;
  });
  return std::min<size_t>(options_.replication,
                          num_servers == 0 ? 0 : static_cast<size_t>(num_servers) - 1);
}

// As they will be when what is under way has ended.
ShardHolders ReplicaAgreement::Holders(ShardId id, const Shard& shard) const {
  const ReplicaSet& entry = shard.handover ? *shard.handover : table_.at(id);
  ShardHolders holders{shard.bytes, entry.primary};
  if (holders.primary && !IsLive(shard, *holders.primary)) holders.primary.reset();
  for (const ServerId follower : entry.followers) {
    if (IsLive(shard, follower)) holders.members.push_back(follower);
  }
  // A learner cannot become primary, and before there is one it is not sent anything.
  if (!holders.primary) return holders;
  for (const ServerId learner : entry.learners) {
    if (IsLive(shard, learner)) holders.members.push_back(learner);
  }
  return holders;
}

void ReplicaAgreement::Plan() {
  const std::vector<TargetServer> targets = Targets();
  std::vector<Shard*> planned;
  std::vector<ShardHolders> holders;
  for (auto& [id, shard] : shards_) {
    ShardHolders now = Holders(id, shard);
    const bool stays_lost = shard.failover && shard.failover->is_lost && !options_.rebuilds;
    if (targets.empty() || stays_lost) {
      std::sort(now.members.begin(), now.members.end());
      shard.wanted = {now.primary, now.members};
      continue;
    }
    planned.push_back(&shard);
    holders.push_back(std::move(now));
  }
  if (targets.empty()) return;
  const std::vector<ServerId> primaries = PlanPrimaries(holders, targets);
  const auto followers = PlanFollowers(holders, primaries, targets, options_.replication);
  for (size_t i = 0; i < planned.size(); ++i) {
    planned[i]->wanted = {primaries[i], followers[i]};
  }
}

// ---- From entry to entry ----

void ReplicaAgreement::Settle(ReplicaChange& change) {
  do {
    if (is_plan_due_) Plan();
    is_plan_due_ = false;
    has_free_slot_ = false;
    for (const Urgency urgency : {Urgency::kRepair, Urgency::kMove}) {
      for (auto& [id, shard] : shards_) {
        while (Advance(id, shard, urgency, change)) {
        }
      }
    }
  } while (is_plan_due_ || has_free_slot_);
}

// Others are visited only where they may have gained something.
void ReplicaAgreement::SettleOne(ShardId id, Shard& shard, ReplicaChange& change) {
  while (Advance(id, shard, Urgency::kMove, change)) {
  }
  if (is_plan_due_ || has_free_slot_) Settle(change);
}

// One change of the shard; false when it has to wait or is where it should be.
bool ReplicaAgreement::Advance(ShardId id, Shard& shard, Urgency urgency, ReplicaChange& change) {
  if (shard.failover) return FinishFailover(id, shard, change);
  const ReplicaSet& entry = table_.at(id);
  const bool has_primary =
      entry.primary && IsLive(shard, *entry.primary) && !shard.is_primary_empty;
  const bool is_cut_short = shard.handover && !IsLive(shard, *shard.handover->primary);
  if (!has_primary || is_cut_short) {
    StartFailover(id, shard, change);
    return true;
  }
  if (shard.handover) return false;

  ReplicaSet next = NextMembers(entry, shard, urgency);
  if (next.followers != entry.followers || next.learners != entry.learners) {
    next.epoch = NextEpoch();
    Install(id, shard, std::move(next), change);
    shard.departed.clear();
    return true;
  }
  if (urgency == Urgency::kRepair || !MayHandOver(entry, shard)) return false;
  StartHandover(id, shard, change);
  return true;
}

// The dead stay listed, as whoever returns with its state may be the last who has it.
void ReplicaAgreement::StartFailover(ShardId id, Shard& shard, ReplicaChange& change) {
  ReplicaSet next = table_.at(id);
  next.epoch = NextEpoch();
  if (next.primary) next.followers.push_back(*next.primary);
  next.primary.reset();
  Install(id, shard, std::move(next), change);
  shard.failover = Failover{.promises = {}, .is_lost = false};
}

bool ReplicaAgreement::FinishFailover(ShardId id, Shard& shard, ReplicaChange& change) {
  const ReplicaSet& entry = table_.at(id);
  const std::map<ServerId, Promise>& promises = shard.failover->promises;
  ReplicaSet next;
  // The longest log; of equal ones the one that the plan would hand the shard to anyway.
  std::tuple<uint64_t, bool> best{};
  const auto visit = [&](ServerId member, bool is_follower) {
    const auto promise = promises.find(member);
    if (promise == promises.end()) return !IsLive(shard, member);
    if (!is_follower || !promise->second.is_full) {
      next.learners.push_back(member);
      return true;
    }
    next.followers.push_back(member);
    const std::tuple rank{promise->second.seq, member == shard.wanted.primary};
    if (!next.primary || rank > best) {
      next.primary = member;
      best = rank;
    }
    return true;
  };
  for (const ServerId follower : entry.followers) {
    if (!visit(follower, true)) return false;
  }
  for (const ServerId learner : entry.learners) {
    if (!visit(learner, false)) return false;
  }
  if (!next.primary && shard.failover->is_lost) return false;
  if (next.primary) {
    next.epoch = NextEpoch();
    std::erase(next.followers, *next.primary);
    Install(id, shard, next, change);
    shard.departed.clear();
  } else {
    shard.failover->is_lost = true;
    change.lost.push_back(id);
  }
  is_plan_due_ =
      is_plan_due_ || std::none_of(shards_.begin(), shards_.end(), [](const auto& other) {
        return other.second.failover && !other.second.failover->is_lost;
      });
  return next.primary.has_value();
}

// What the entry should be next, except for who is primary.
ReplicaSet ReplicaAgreement::NextMembers(const ReplicaSet& entry,
                                         const Shard& shard,
                                         Urgency urgency) const {
  const Wanted& wanted = shard.wanted;
  ReplicaSet next{entry.epoch, entry.primary};
  for (const ServerId follower : entry.followers) {
    if (IsLive(shard, follower)) next.followers.push_back(follower);
  }
  const bool has_all_wanted =
      entry.primary == wanted.primary && wanted.followers.size() >= NumFollowersAsked() &&
      std::all_of(wanted.followers.begin(), wanted.followers.end(), [&](ServerId follower) {
        return Contains(next.followers, follower) && shard.confirmed.contains(follower);
      });
  if (has_all_wanted) next.followers = wanted.followers;
  for (const ServerId learner : entry.learners) {
    const bool is_wanted = learner == wanted.primary || Contains(wanted.followers, learner);
    if (!is_wanted || !IsLive(shard, learner)) continue;
    (shard.confirmed.contains(learner) ? next.followers : next.learners).push_back(learner);
  }
  AddLearners(shard, urgency, next);
  std::sort(next.followers.begin(), next.followers.end());
  std::sort(next.learners.begin(), next.learners.end());
  return next;
}

void ReplicaAgreement::AddLearners(const Shard& shard, Urgency urgency, ReplicaSet& next) const {
  const auto has_slot = [&](ServerId server) {
    const auto copies = copies_.find(server);
    return copies == copies_.end() || copies->second < options_.moves_per_server;
  };
  std::vector<ServerId> missing = shard.wanted.followers;
  if (shard.wanted.primary) missing.push_back(*shard.wanted.primary);
  std::erase_if(missing,
                [&](ServerId server) { return !IsThere(server) || IsMember(next, server); });
  for (const ServerId server : missing) {
    const size_t num_copies = next.followers.size() + next.learners.size();
    if (urgency == Urgency::kMove || num_copies < shard.wanted.followers.size()) {
      // A shard that is being copied already takes no second slot of its primary.
      const bool may_send = !next.learners.empty() || has_slot(*next.primary);
      if (may_send && has_slot(server)) next.learners.push_back(server);
    }
  }
}

bool ReplicaAgreement::MayHandOver(const ReplicaSet& entry, const Shard& shard) const {
  const std::optional<ServerId>& to = shard.wanted.primary;
  return to && to != entry.primary && entry.learners.empty() && Contains(entry.followers, *to) &&
         shard.confirmed.contains(*to);
}

void ReplicaAgreement::StartHandover(ShardId id, Shard& shard, ReplicaChange& change) {
  const ReplicaSet& entry = table_.at(id);
  const ServerId source = *entry.primary;
  ReplicaSet next = entry;
  next.epoch = NextEpoch();
  next.primary = shard.wanted.primary;
  std::replace(next.followers.begin(), next.followers.end(), *next.primary, source);
  std::sort(next.followers.begin(), next.followers.end());
  change.handovers.push_back({source, {id, entry.epoch, next}});
  shard.handover = std::move(next);
}

// Every entry starts anew: what was under way and confirmed belonged to the one before.
void ReplicaAgreement::Install(ShardId id, Shard& shard, ReplicaSet entry, ReplicaChange& change) {
  std::sort(entry.followers.begin(), entry.followers.end());
  std::sort(entry.learners.begin(), entry.learners.end());
  ReplicaSet& held = table_.at(id);
  CountCopies(held, -1);
  CountCopies(entry, 1);
  held = std::move(entry);
  shard.confirmed.clear();
  shard.is_primary_empty = false;
  shard.failover.reset();
  shard.handover.reset();
  change.entries.emplace_back(id, held);
}

// A server knows a higher entry than the table: that of a handover, or of a rebuilt shard, whose
// end was not heard of yet. Above what was ever given out is a successor's: this coordinator has no
// say any more.
void ReplicaAgreement::TakeOver(ShardId id, const ReplicaSet& entry, ReplicaChange& change) {
  if (entry.epoch <= table_.at(id).epoch || entry.epoch > epoch()) return;
  Shard& shard = shards_.at(id);
  // Above an entry without primary there is only that of a shard that is being rebuilt; if somebody
  // else was told to do so since, two would reign.
  if (shard.failover && shard.failover->rebuilt != entry) return;
  if (shard.failover) {
    is_plan_due_ = true;
    shard.departed.clear();  // whoever has been given the state is another process
  }
  Install(id, shard, entry, change);
  std::erase_if(shard.departed, [&](ServerId member) { return !IsMember(entry, member); });
}

void ReplicaAgreement::CountCopies(const ReplicaSet& entry, int difference) {
  if (!entry.primary || entry.learners.empty()) return;  // without primary nobody sends
  const auto count = [&](ServerId server) {
    size_t& copies = copies_[server];
    copies = difference > 0 ? copies + 1 : copies - 1;
  };
  count(*entry.primary);
  for (const ServerId learner : entry.learners) count(learner);
  has_free_slot_ = has_free_slot_ || difference < 0;
}

}  // namespace pushpull
