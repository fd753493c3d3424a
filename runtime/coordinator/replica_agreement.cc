// SPDX-License-Identifier: Apache-2.0
//
// One shard at a time, from one entry to the next; see replica_agreement.h.
#include "runtime/coordinator/replica_agreement.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"

namespace pushpull {
namespace {

bool IsMember(const ReplicaSet& entry, ServerId server) {
  return entry.RoleOf(server) != ReplicaRole::kNone;
}

}  // namespace

// ---- Targets and elections ----

void ReplicaTargets::Add(ServerId server, double weight, std::string rack) {
  present_[server] = {.weight = std::isfinite(weight) ? weight : 0, .rack = std::move(rack)};
}

absl::string_view ReplicaTargets::RackOf(ServerId server) const {
  const auto found = present_.find(server);
  return found == present_.end() ? absl::string_view() : found->second.rack;
}

std::vector<TargetServer> ReplicaTargets::Servers() const {
  std::vector<TargetServer> servers;
  for (const auto& [id, server] : present_) {
    if (server.weight > 0 && (!target_ || target_->contains(id)))
      servers.push_back({id, server.weight, server.rack});
  }
  return servers;
}

size_t ReplicaTargets::NumFollowers(uint32_t replication) const {
  if (!target_) return 0;
  const auto holders = std::count_if(target_->begin(), target_->end(), [&](ServerId server) {
    const auto found = present_.find(server);
    return found == present_.end() || found->second.weight > 0;
  });
  return std::min<size_t>(replication, holders == 0 ? 0 : static_cast<size_t>(holders) - 1);
}

std::optional<ReplicaSet> ShardFailover::Elect(const ReplicaSet& entry,
                                               absl::FunctionRef<bool(ServerId)> is_live,
                                               std::optional<ServerId> preferred) {
  ReplicaSet next;
  std::tuple<uint64_t, bool> best{};
  for (const auto* members : {&entry.followers, &entry.learners}) {
    for (const ServerId member : *members) {
      const auto promise = promises_.find(member);
      if (promise == promises_.end()) {
        if (is_live(member)) return std::nullopt;
        continue;
      }
      // A learner may lack versions that were published before it joined, whatever it says.
      if (members == &entry.learners || !promise->second.is_full) {
        next.learners.push_back(member);
        continue;
      }
      next.followers.push_back(member);
      const std::tuple rank{promise->second.seq, member == preferred};
      if (next.primary && rank <= best) continue;
      next.primary = member;
      best = rank;
    }
  }
  if (next.primary) {
    std::erase(next.followers, *next.primary);
  } else if (std::exchange(is_lost_, true)) {
    return std::nullopt;
  }
  return next;
}

// ---- Events ----

ReplicaChange ReplicaAgreement::AddServer(ServerId server, double weight, std::string rack) {
  targets_.Add(server, weight, std::move(rack));
  return Replan();
}

ReplicaChange ReplicaAgreement::LoseServer(ServerId server) {
  targets_.Remove(server);
  for (auto& [id, shard] : shards_) {
    if (!IsMember(table_.at(id), server)) continue;
    shard.departed.insert(server);
    shard.confirmed.erase(server);
    if (shard.failover) shard.failover->Forget(server);
  }
  return Replan();
}

ReplicaChange ReplicaAgreement::Place(const std::vector<FirstEntry>& entries) {
  std::vector<ShardHolders> holders;
  std::vector<ServerId> primaries;
  for (const FirstEntry& entry : entries) {
    holders.push_back({entry.bytes, entry.primary});
    primaries.push_back(entry.primary);
  }
  const std::vector<TargetServer> targets = targets_.Servers();
  std::vector<std::vector<ServerId>> followers(entries.size());
  if (!targets.empty()) {
    followers = PlanFollowers(holders, primaries, targets, options_.replication);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const FirstEntry& entry = entries[i];
    Shard& shard = shards_[entry.shard];
    shard.bytes = entry.bytes;
    shard.wanted = {entry.primary, followers[i]};
    table_[entry.shard] = {};
    Install(entry.shard, shard, {NextEpoch(), entry.primary, followers[i]});
  }
  return std::exchange(change_, {});
}

ReplicaChange ReplicaAgreement::Restore(const std::vector<EarlierEntry>& entries) {
  for (const EarlierEntry& earlier : entries) {
    Shard& shard = shards_[earlier.shard];
    shard.bytes = earlier.bytes;
    table_[earlier.shard] = earlier.entry;
    slots_.Take(earlier.entry);
    StartFailover(earlier.shard, shard);
  }
  return Replan();
}

ReplicaChange ReplicaAgreement::SetTarget(const std::set<ServerId>& servers) {
  targets_.Set(servers);
  return Replan();
}

ReplicaChange ReplicaAgreement::OnPromise(ServerId server, const Promise& promise) {
  const auto found = shards_.find(promise.shard);
  if (found == shards_.end() || !targets_.IsPresent(server)) return {};
  Shard& shard = found->second;
  const ReplicaSet& entry = table_.at(promise.shard);
  if (promise.entry.epoch > entry.epoch) {
    TakeOver(promise.shard, promise.entry);
  } else if (promise.entry.epoch == entry.epoch) {
    if (shard.failover) shard.failover->OnPromise(server, promise);
    if (entry.primary == server && !promise.is_full && !shard.handover) {
      shard.is_primary_empty = true;
    }
  }
  return SettleOne(promise.shard, shard);
}

ReplicaChange ReplicaAgreement::OnCaughtUp(const CaughtUp& message) {
  const auto found = shards_.find(message.shard);
  if (found == shards_.end()) return {};
  Shard& shard = found->second;
  const ReplicaSet& entry = table_.at(message.shard);
  if (message.epoch != entry.epoch || !IsMember(entry, message.member)) return {};
  if (!IsLive(shard, message.member)) return {};
  shard.confirmed.insert(message.member);
  return SettleOne(message.shard, shard);
}

ReplicaChange ReplicaAgreement::OnHandedOver(const HandedOver& message) {
  const auto found = shards_.find(message.shard);
  if (found == shards_.end()) return {};
  TakeOver(message.shard, message.entry);
  return SettleOne(message.shard, found->second);
}

bool ReplicaAgreement::is_lost(ShardId shard) const {
  const auto found = shards_.find(shard);
  return found != shards_.end() && found->second.failover && found->second.failover->is_lost();
}

bool ReplicaAgreement::HasPromised(ShardId shard, ServerId server) const {
  return is_lost(shard) && shards_.at(shard).failover->HasPromised(server);
}

std::optional<ReplicaSet> ReplicaAgreement::Rebuild(ShardId id) {
  if (!is_lost(id)) return std::nullopt;
  Shard& shard = shards_.at(id);
  const std::optional<ServerId> primary = shard.wanted.primary;
  if (!primary || !targets_.IsPresent(*primary)) return std::nullopt;
  shard.failover->SetRebuilt({NextEpoch(), primary});
  return shard.failover->rebuilt();
}

ReplicaChange ReplicaAgreement::OnRebuilt(ShardId id, const ReplicaSet& entry) {
  if (!is_lost(id)) return {};
  TakeOver(id, entry);
  return SettleOne(id, shards_.at(id));
}

// ---- State ----

size_t ReplicaAgreement::shards_moving() const {
  return static_cast<size_t>(absl::c_count_if(shards_, [&](const auto& shard) {
    return !IsSettled(table_.at(shard.first), shard.second);
  }));
}

size_t ReplicaAgreement::shards_in_one_rack() const {
  return static_cast<size_t>(absl::c_count_if(table_, [&](const auto& shard) {
    const ReplicaSet& entry = shard.second;
    if (!entry.primary || entry.followers.empty()) return false;
    const absl::string_view rack = targets_.RackOf(*entry.primary);
    return !rack.empty() && absl::c_all_of(entry.followers, [&](ServerId follower) {
      return targets_.RackOf(follower) == rack;
    });
  }));
}

bool ReplicaAgreement::HasEveryPrimary() const {
  return absl::c_all_of(table_, [](const auto& entry) { return entry.second.primary.has_value(); });
}

bool ReplicaAgreement::is_drained(ServerId server) const {
  return absl::c_none_of(table_, [&](const auto& entry) { return IsMember(entry.second, server); });
}

bool ReplicaAgreement::IsSettled(const ReplicaSet& entry, const Shard& shard) const {
  return entry.primary && entry.primary == shard.wanted.primary && !shard.handover &&
         entry.followers == shard.wanted.followers && entry.learners.empty() &&
         absl::c_all_of(entry.followers,
                        [&](ServerId follower) { return shard.confirmed.contains(follower); });
}

bool ReplicaAgreement::IsLive(const Shard& shard, ServerId member) const {
  return targets_.IsPresent(member) && !shard.departed.contains(member);
}

// ---- Planning ----

// The holders as they will be when the handover under way has ended.
ShardHolders ReplicaAgreement::Holders(ShardId id, const Shard& shard) const {
  const ReplicaSet& entry = shard.handover ? *shard.handover : table_.at(id);
  ShardHolders holders{shard.bytes, entry.primary};
  if (holders.primary && !IsLive(shard, *holders.primary)) holders.primary.reset();
  for (const ServerId follower : entry.followers) {
    if (IsLive(shard, follower)) holders.members.push_back(follower);
  }
  // A learner cannot become primary, and without a primary it receives nothing.
  if (!holders.primary) return holders;
  for (const ServerId learner : entry.learners) {
    if (IsLive(shard, learner)) holders.members.push_back(learner);
  }
  return holders;
}

void ReplicaAgreement::Plan() {
  const std::vector<TargetServer> targets = targets_.Servers();
  std::vector<Shard*> planned;
  std::vector<ShardHolders> holders;
  for (auto& [id, shard] : shards_) {
    ShardHolders now = Holders(id, shard);
    const bool stays_lost = shard.failover && shard.failover->is_lost() && !options_.rebuilds;
    if (targets.empty() || stays_lost) {
      absl::c_sort(now.members);
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

void ReplicaAgreement::Settle() {
  do {
    if (is_plan_due_) Plan();
    is_plan_due_ = false;
    slots_.TakeFreed();
    for (const Urgency urgency : {Urgency::kRepair, Urgency::kMove}) {
      for (auto& [id, shard] : shards_) {
        while (Advance(id, shard, urgency)) {
        }
      }
    }
  } while (is_plan_due_ || slots_.TakeFreed());
}

ReplicaChange ReplicaAgreement::Replan() {
  is_plan_due_ = true;
  Settle();
  return std::exchange(change_, {});
}

// Other shards are visited only if they may be able to proceed: after a new plan, or when a slot is
// freed.
ReplicaChange ReplicaAgreement::SettleOne(ShardId id, Shard& shard) {
  while (Advance(id, shard, Urgency::kMove)) {
  }
  if (is_plan_due_ || slots_.TakeFreed()) Settle();
  return std::exchange(change_, {});
}

// Makes one change to the shard; false if it has to wait or is as it should be.
bool ReplicaAgreement::Advance(ShardId id, Shard& shard, Urgency urgency) {
  if (shard.failover) return FinishFailover(id, shard);
  const ReplicaSet& entry = table_.at(id);
  const bool has_primary =
      entry.primary && IsLive(shard, *entry.primary) && !shard.is_primary_empty;
  const bool is_cut_short = shard.handover && !IsLive(shard, *shard.handover->primary);
  if (!has_primary || is_cut_short) {
    StartFailover(id, shard);
    return true;
  }
  if (shard.handover) return false;

  ReplicaSet next = NextMembers(entry, shard, urgency);
  if (next.followers != entry.followers || next.learners != entry.learners) {
    next.epoch = NextEpoch();
    Install(id, shard, std::move(next));
    shard.departed.clear();
    return true;
  }
  if (urgency == Urgency::kRepair || !MayHandOver(entry, shard)) return false;
  StartHandover(id, shard);
  return true;
}

// Dead members stay listed: one that returns with its state may be the last to have it.
void ReplicaAgreement::StartFailover(ShardId id, Shard& shard) {
  ReplicaSet next = table_.at(id);
  next.epoch = NextEpoch();
  if (next.primary) next.followers.push_back(*next.primary);
  next.primary.reset();
  Install(id, shard, std::move(next));
  shard.failover.emplace();
}

bool ReplicaAgreement::FinishFailover(ShardId id, Shard& shard) {
  const auto is_live = [&](ServerId member) { return IsLive(shard, member); };
  std::optional<ReplicaSet> next =
      shard.failover->Elect(table_.at(id), is_live, shard.wanted.primary);
  if (!next) return false;
  const bool has_primary = next->primary.has_value();
  if (has_primary) {
    next->epoch = NextEpoch();
    Install(id, shard, *std::move(next));
    shard.departed.clear();
  } else {
    change_.lost.push_back(id);
  }
  // Failovers only keep shards available; when the last one is over, shards are spread again.
  is_plan_due_ = is_plan_due_ || absl::c_none_of(shards_, [](const auto& other) {
                   return other.second.failover && !other.second.failover->is_lost();
                 });
  return has_primary;
}

// The members of the next entry, except for a change of the primary.
ReplicaSet ReplicaAgreement::NextMembers(const ReplicaSet& entry,
                                         const Shard& shard,
                                         Urgency urgency) const {
  const Wanted& wanted = shard.wanted;
  ReplicaSet next{entry.epoch, entry.primary};
  for (const ServerId follower : entry.followers) {
    if (IsLive(shard, follower)) next.followers.push_back(follower);
  }
  const bool has_all_wanted =
      entry.primary == wanted.primary &&
      wanted.followers.size() >= targets_.NumFollowers(options_.replication) &&
      absl::c_all_of(wanted.followers, [&](ServerId follower) {
        return absl::c_linear_search(next.followers, follower) &&
               shard.confirmed.contains(follower);
      });
  if (has_all_wanted) next.followers = wanted.followers;
  for (const ServerId learner : entry.learners) {
    const bool is_wanted =
        learner == wanted.primary || absl::c_linear_search(wanted.followers, learner);
    if (!is_wanted || !IsLive(shard, learner)) continue;
    (shard.confirmed.contains(learner) ? next.followers : next.learners).push_back(learner);
  }
  AddLearners(shard, urgency, next);
  absl::c_sort(next.followers);
  absl::c_sort(next.learners);
  return next;
}

void ReplicaAgreement::AddLearners(const Shard& shard, Urgency urgency, ReplicaSet& next) const {
  std::vector<ServerId> missing = shard.wanted.followers;
  if (shard.wanted.primary) missing.push_back(*shard.wanted.primary);
  std::erase_if(missing, [&](ServerId server) {
    return !targets_.IsPresent(server) || IsMember(next, server);
  });
  for (const ServerId server : missing) {
    const size_t num_copies = next.followers.size() + next.learners.size();
    if (urgency == Urgency::kMove || num_copies < shard.wanted.followers.size()) {
      // A shard that is already being copied takes no second slot of its primary.
      const bool may_send = !next.learners.empty() || slots_.IsFree(*next.primary);
      if (may_send && slots_.IsFree(server)) next.learners.push_back(server);
    }
  }
}

bool ReplicaAgreement::MayHandOver(const ReplicaSet& entry, const Shard& shard) const {
  const std::optional<ServerId>& to = shard.wanted.primary;
  return to && to != entry.primary && entry.learners.empty() &&
         absl::c_linear_search(entry.followers, *to) && shard.confirmed.contains(*to);
}

void ReplicaAgreement::StartHandover(ShardId id, Shard& shard) {
  const ReplicaSet& entry = table_.at(id);
  const ServerId source = *entry.primary;
  ReplicaSet next = entry;
  next.epoch = NextEpoch();
  next.primary = shard.wanted.primary;
  absl::c_replace(next.followers, *next.primary, source);
  absl::c_sort(next.followers);
  change_.handovers.push_back({source, {id, entry.epoch, next}});
  shard.handover = std::move(next);
}

// Confirmations, failover and handover belong to the previous entry, and start over with this one.
void ReplicaAgreement::Install(ShardId id, Shard& shard, ReplicaSet entry) {
  absl::c_sort(entry.followers);
  absl::c_sort(entry.learners);
  ReplicaSet& held = table_.at(id);
  slots_.Give(held);
  slots_.Take(entry);
  held = std::move(entry);
  shard.confirmed.clear();
  shard.is_primary_empty = false;
  shard.failover.reset();
  shard.handover.reset();
  change_.entries.emplace_back(id, held);
}

// A server has a higher entry than the table: that of a handover or a rebuilt shard whose
// completion has not been received yet. An epoch above every one that this coordinator has issued
// comes from a successor, and is not for this one to handle.
void ReplicaAgreement::TakeOver(ShardId id, const ReplicaSet& entry) {
  if (entry.epoch <= table_.at(id).epoch || entry.epoch > epoch()) return;
  Shard& shard = shards_.at(id);
  // The only entry above one without a primary is that of a shard being rebuilt. If another server
  // has been ordered to rebuild it since then, accepting this entry would create two primaries.
  if (shard.failover && shard.failover->rebuilt() != entry) return;
  if (shard.failover) {
    is_plan_due_ = true;
    shard.departed.clear();  // the server with the rebuilt state is another process
  }
  Install(id, shard, entry);
  std::erase_if(shard.departed, [&](ServerId member) { return !IsMember(entry, member); });
}

}  // namespace pushpull
