// SPDX-License-Identifier: Apache-2.0
//
// ReplicaAgreement against servers that obey the rules of members in a simple way, while servers
// die, are cut off, come back and targets change, all from a seed. What must hold is checked after
// every event; a failing test names its seed.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/coordinator/replica_agreement.h"
#include "tests/fakes/seeds.h"

namespace pushpull {
namespace {

constexpr size_t kServersMax = 6;
constexpr size_t kCoordinator = kServersMax;
constexpr uint64_t kShardBytes = 1000;
constexpr int kStepsWithFaults = 400;
constexpr int kStepsToSettle = 500000;

struct NewEntry {
  ShardId shard;
  ReplicaSet entry;
  bool is_first = false;
};
// From the old primary to the new one.
struct Reign {
  ShardId shard;
  ReplicaSet entry;
  uint64_t seq = 0;
};
using Message = std::variant<NewEntry, Handover, Reign, Promise, CaughtUp, HandedOver>;

// What one server has of one shard.
struct Holding {
  ReplicaSet entry;
  bool is_full = false;
  bool has_bytes = false;
  uint64_t seq = 0;
  // While it serves as primary:
  bool reigns = false;
  std::map<ServerId, uint64_t> acknowledged = {};  // by those in its stream
  std::set<ServerId> confirmed = {};
  std::optional<ReplicaSet> handover = {};

  void StopReign() {
    reigns = false;
    acknowledged.clear();
    confirmed.clear();
    handover.reset();
  }
};

struct Process {
  bool is_alive = false;
  bool is_known = false;  // the coordinator has a session to it
  std::map<ShardId, Holding> shards = {};
};

class Simulation {
 public:
  Simulation(uint32_t seed, uint32_t replication, uint32_t num_servers, uint32_t num_shards);

  void RunWithFaults(bool is_beyond);
  // Until nothing more happens.
  void Settle();
  void SetTarget(const std::set<ServerId>& servers);
  void Add(ServerId server, double weight);

  const std::string& failure() const { return failure_; }
  size_t copies() const { return copies_; }
  const ReplicaAgreement& agreement() const { return agreement_; }
  // What is wrong at the end; empty when all is as it should be.
  std::string Complaint() const;

 private:
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  void Fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }
  Process& At(ServerId server) { return processes_[server.value()]; }
  void Send(size_t from, size_t to, Message message) {
    queues_[from][to].push_back(std::move(message));
  }

  void Apply(const ReplicaChange& change, bool are_first = false);
  bool Deliver();
  void OnCoordinator(ServerId from, const Message& message);
  void OnServer(ServerId self, const Message& message);
  void Install(ServerId self, ShardId shard, const ReplicaSet& entry, bool is_handed);
  void Work();
  void Sync(ServerId self, ShardId shard, Holding& primary, ServerId member);
  void Publish(ShardId shard, const Holding& primary);
  void CompleteHandover(ServerId self, ShardId shard, Holding& primary);

  void CountAnew();
  void Fault(bool is_beyond);
  void Kill(ServerId server);
  void Detect();
  bool IsRestored() const;
  size_t NumAsked() const;   // followers, with the whole target
  size_t NumWanted() const;  // followers, with those of it that are there
  std::vector<ServerId> Effective() const;
  std::string RackOf(ServerId server) const;
  void CheckHolders();

  std::mt19937 random_;
  const uint32_t replication_;
  const uint32_t num_racks_;  // 0: they are not known
  ReplicaAgreement agreement_;
  std::array<Process, kServersMax> processes_;
  std::array<std::array<std::deque<Message>, kServersMax + 1>, kServersMax + 1> queues_;
  std::map<ServerId, double> weights_;
  std::optional<std::set<ServerId>> target_;
  std::map<ShardId, uint64_t> published_;
  std::map<std::pair<ShardId, Epoch>, ServerId> reigns_;
  std::map<ShardId, Epoch> newest_reign_;
  std::map<ShardId, Epoch> told_;
  Epoch newest_{Term{2}, 0};
  std::set<ShardId> lost_;
  size_t copies_ = 0;
  size_t outstanding_ = 0;  // deaths since everything was last as it should be
  size_t deaths_max_ = 0;   // that may not lose anything
  bool may_lose_ = false;
  std::string failure_;
};

Simulation::Simulation(uint32_t seed,
                       uint32_t replication,
                       uint32_t num_servers,
                       uint32_t num_shards)
    : random_(seed),
      replication_(replication),
      num_racks_(seed % 4),
      agreement_({Term{2}, replication, 1 + size_t{seed % 4}}) {
  for (uint32_t i = 0; i < num_servers; ++i) Add(ServerId{i}, 1);
  std::vector<ReplicaAgreement::FirstEntry> entries;
  for (uint32_t i = 0; i < num_shards; ++i) {
    entries.push_back({ShardId{i}, kShardBytes, ServerId{i % num_servers}});
  }
  Apply(agreement_.Place(entries), true);
}

void Simulation::Add(ServerId server, double weight) {
  processes_[server.value()] = {.is_alive = true, .is_known = true};
  weights_[server] = weight;
  for (const auto& [shard, entry] : agreement_.table()) {
    Send(kCoordinator, server.value(), NewEntry{shard, entry});
  }
  Apply(agreement_.AddServer(server, weight, RackOf(server)));
}

void Simulation::SetTarget(const std::set<ServerId>& servers) {
  target_ = servers;
  const size_t num_others = NumAsked();
  // Fewer copies are asked for than have just died: that is a loss unless the dead are known.
  for (size_t i = 0; num_others < outstanding_ && i < kServersMax; ++i) Detect();
  deaths_max_ = std::min(deaths_max_, num_others);
  Apply(agreement_.SetTarget(servers));
}

void Simulation::Apply(const ReplicaChange& change, bool are_first) {
  for (const auto& [shard, entry] : change.entries) {
    if (entry.epoch <= told_[shard]) Fail("an entry's epoch does not rise");
    told_[shard] = entry.epoch;
    newest_ = std::max(newest_, entry.epoch);
    for (uint32_t i = 0; i < kServersMax; ++i) {
      if (processes_[i].is_known) Send(kCoordinator, i, NewEntry{shard, entry, are_first});
    }
  }
  for (const auto& [server, handover] : change.handovers) {
    if (handover.next.epoch <= told_[handover.shard]) Fail("a handover's epoch does not rise");
    newest_ = std::max(newest_, handover.next.epoch);
    Send(kCoordinator, server.value(), handover);
  }
  for (const ShardId shard : change.lost) {
    if (!may_lose_) Fail(absl::StrCat("shard ", shard.value(), " lost"));
    if (!lost_.insert(shard).second) Fail("lost twice");
  }
  if (newest_ != agreement_.epoch()) Fail("an epoch was given out and told nobody");
}

// ---- Servers ----

bool Simulation::Deliver() {
  std::vector<std::pair<size_t, size_t>> pending;
  for (size_t from = 0; from <= kServersMax; ++from) {
    for (size_t to = 0; to <= kServersMax; ++to) {
      if (!queues_[from][to].empty()) pending.emplace_back(from, to);
    }
  }
  if (pending.empty()) return false;
  const auto [from, to] = pending[Below(static_cast<uint32_t>(pending.size()))];
  const Message message = std::move(queues_[from][to].front());
  queues_[from][to].pop_front();
  if (to == kCoordinator) {
    OnCoordinator(ServerId{static_cast<uint32_t>(from)}, message);
  } else if (processes_[to].is_alive) {
    OnServer(ServerId{static_cast<uint32_t>(to)}, message);
  }
  return true;
}

void Simulation::OnCoordinator(ServerId from, const Message& message) {
  if (!At(from).is_known) return;
  if (const auto* promise = std::get_if<Promise>(&message)) {
    Apply(agreement_.OnPromise(from, *promise));
  } else if (const auto* caught_up = std::get_if<CaughtUp>(&message)) {
    Apply(agreement_.OnCaughtUp(*caught_up));
  } else if (const auto* handed_over = std::get_if<HandedOver>(&message)) {
    Apply(agreement_.OnHandedOver(*handed_over));
  }
}

void Simulation::OnServer(ServerId self, const Message& message) {
  Process& process = At(self);
  if (const auto* news = std::get_if<NewEntry>(&message)) {
    const bool concerns =
        process.shards.contains(news->shard) || news->entry.RoleOf(self) != ReplicaRole::kNone;
    if (!concerns) return;
    Holding& held = process.shards[news->shard];
    if (news->is_first) {
      held.is_full = held.has_bytes = news->entry.RoleOf(self) != ReplicaRole::kNone;
      held.entry = {news->entry.epoch, std::nullopt, {self}};  // as if it had been a member before
      held.entry.epoch.counter -= 1;
    }
    Install(self, news->shard, news->entry, false);
    if (process.is_known) {
      Send(self.value(), kCoordinator, Promise{news->shard, held.entry, held.seq, held.is_full});
    }
  } else if (const auto* handover = std::get_if<Handover>(&message)) {
    Holding& held = process.shards[handover->shard];
    if (held.reigns && held.entry.epoch == handover->current) held.handover = handover->next;
  } else if (const auto* reign = std::get_if<Reign>(&message)) {
    Holding& held = process.shards[reign->shard];
    if (held.entry.epoch >= reign->entry.epoch || held.seq != reign->seq) return;
    Install(self, reign->shard, reign->entry, true);
    if (process.is_known) {
      Send(self.value(), kCoordinator, HandedOver{reign->shard, reign->entry});
    }
  }
}

void Simulation::Install(ServerId self, ShardId shard, const ReplicaSet& entry, bool is_handed) {
  Holding& held = At(self).shards[shard];
  if (entry.epoch <= held.entry.epoch) return;
  const ReplicaRole before = held.entry.RoleOf(self);
  const ReplicaRole role = entry.RoleOf(self);
  held.entry = entry;
  if (role != ReplicaRole::kPrimary) held.StopReign();
  const bool was_counted = before == ReplicaRole::kFollower || before == ReplicaRole::kPrimary;
  if (role == ReplicaRole::kFollower && !was_counted) held.is_full = false;
  if (role == ReplicaRole::kLearner) held.is_full = false;
  if (role == ReplicaRole::kNone) held.is_full = held.has_bytes = false;
  if (role != ReplicaRole::kPrimary || (!held.is_full && !is_handed)) return;
  held.StopReign();
  held.reigns = true;
  held.is_full = true;
  if (!reigns_.try_emplace({shard, entry.epoch}, self).second) Fail("two primaries in one epoch");
  // One that was cut off may come late, to an epoch that is over: nobody follows it.
  const bool is_over = std::exchange(newest_reign_[shard],
                                     std::max(newest_reign_[shard], entry.epoch)) > entry.epoch;
  if (held.seq < published_[shard] && !is_over && !lost_.contains(shard)) {
    Fail(absl::StrCat("shard ",
                      shard.value(),
                      ": ",
                      ToString(self),
                      " reigns from ",
                      held.seq,
                      ", published was ",
                      published_[shard]));
  }
}

// A random primary does something.
void Simulation::Work() {
  const ServerId self{Below(kServersMax)};
  if (!At(self).is_alive || At(self).shards.empty()) return;
  auto place = At(self).shards.begin();
  std::advance(place, Below(static_cast<uint32_t>(At(self).shards.size())));
  auto& [shard, held] = *place;
  if (!held.reigns) return;
  if (!held.handover && Below(4) == 0) ++held.seq;
  std::vector<ServerId> members = held.entry.followers;
  members.insert(members.end(), held.entry.learners.begin(), held.entry.learners.end());
  if (!members.empty()) {
    Sync(self, shard, held, members[Below(static_cast<uint32_t>(members.size()))]);
  }
  Publish(shard, held);
  if (held.handover) CompleteHandover(self, shard, held);
}

// The member gets what it lacks, and loses what the primary does not have.
void Simulation::Sync(ServerId self, ShardId shard, Holding& primary, ServerId member) {
  if (!At(member).is_alive || !At(member).shards.contains(shard)) return;
  Holding& held = At(member).shards[shard];
  if (held.entry.epoch != primary.entry.epoch) return;
  if (!held.has_bytes) ++copies_;
  held.has_bytes = true;
  held.seq = primary.seq;
  if (held.entry.RoleOf(member) == ReplicaRole::kFollower) held.is_full = true;
  primary.acknowledged[member] = primary.seq;
  if (primary.confirmed.insert(member).second && At(self).is_known) {
    Send(self.value(), kCoordinator, CaughtUp{shard, primary.entry.epoch, member});
  }
}

void Simulation::Publish(ShardId shard, const Holding& primary) {
  uint64_t level = primary.seq;
  const auto wait_for = [&](ServerId member) {
    const auto found = primary.acknowledged.find(member);
    level = found == primary.acknowledged.end() ? 0 : std::min(level, found->second);
  };
  for (const ServerId follower : primary.entry.followers) wait_for(follower);
  for (const ServerId member : primary.confirmed) wait_for(member);
  published_[shard] = std::max(published_[shard], level);
}

void Simulation::CompleteHandover(ServerId self, ShardId shard, Holding& primary) {
  const ReplicaSet next = *primary.handover;
  const auto found = primary.acknowledged.find(*next.primary);
  if (found == primary.acknowledged.end() || found->second != primary.seq) return;
  Send(self.value(), next.primary->value(), Reign{shard, next, primary.seq});
  Install(self, shard, next, false);
}

// ---- Faults ----

std::vector<ServerId> Simulation::Effective() const {
  std::vector<ServerId> servers;
  for (uint32_t i = 0; i < kServersMax; ++i) {
    const bool is_there = processes_[i].is_alive && processes_[i].is_known;
    if (is_there && (!target_ || target_->contains(ServerId{i}))) servers.emplace_back(i);
  }
  return servers;
}

std::string Simulation::RackOf(ServerId server) const {
  return num_racks_ == 0 ? "" : absl::StrCat("r", server.value() % num_racks_);
}

size_t Simulation::NumWanted() const {
  const size_t num_servers = Effective().size();
  return num_servers == 0 ? 0 : std::min<size_t>(replication_, num_servers - 1);
}

size_t Simulation::NumAsked() const {
  if (!target_) return replication_;
  return target_->empty() ? 0 : std::min<size_t>(replication_, target_->size() - 1);
}

// Every member of every shard is there and full.
bool Simulation::IsRestored() const {
  const auto is_full = [&](ShardId shard, ServerId member, Epoch epoch) {
    const Process& process = processes_[member.value()];
    const auto held = process.shards.find(shard);
    return process.is_alive && process.is_known && held != process.shards.end() &&
           held->second.entry.epoch == epoch && held->second.is_full;
  };
  for (const auto& [shard, entry] : agreement_.table()) {
    if (!entry.primary || !is_full(shard, *entry.primary, entry.epoch)) return false;
    if (entry.followers.size() < NumWanted()) return false;
    for (const ServerId follower : entry.followers) {
      if (!is_full(shard, follower, entry.epoch)) return false;
    }
  }
  return true;
}

void Simulation::Kill(ServerId server) {
  At(server).is_alive = false;
  At(server).shards.clear();
  for (size_t other = 0; other <= kServersMax; ++other) {
    queues_[other][server.value()].clear();
    std::deque<Message>& sent = queues_[server.value()][other];
    sent.resize(sent.empty() ? 0 : Below(static_cast<uint32_t>(sent.size()) + 1));
  }
  // Connections to it break.
  for (Process& process : processes_) {
    for (auto& [shard, held] : process.shards) held.acknowledged.erase(server);
  }
}

// The coordinator notices who is dead.
void Simulation::Detect() {
  for (uint32_t i = 0; i < kServersMax; ++i) {
    if (processes_[i].is_alive || !processes_[i].is_known) continue;
    processes_[i].is_known = false;
    queues_[i][kCoordinator].clear();
    weights_.erase(ServerId{i});
    Apply(agreement_.LoseServer(ServerId{i}));
    return;
  }
}

// While everything is as it should be, as many may die as each shard has followers.
void Simulation::CountAnew() {
  if (!IsRestored()) return;
  outstanding_ = 0;
  deaths_max_ = NumAsked();
  for (const auto& [shard, entry] : agreement_.table()) {
    deaths_max_ = std::min(deaths_max_, entry.followers.size());
  }
}

void Simulation::Fault(bool is_beyond) {
  const ServerId server{Below(kServersMax)};
  Process& process = At(server);
  if (!process.is_known) {
    if (process.is_alive) Kill(server);
    if (Below(2) == 0) Add(server, 1);
    return;
  }
  if (Below(2) == 0) {
    std::set<ServerId> servers;
    for (uint32_t i = 0; i < kServersMax; ++i) {
      if (Below(2) == 0) servers.insert(ServerId{i});
    }
    SetTarget(servers);
    return;
  }
  if (!process.is_alive || (!is_beyond && outstanding_ >= deaths_max_)) return;
  ++outstanding_;
  if (Below(3) == 0) {  // cut off: it goes on, and the coordinator takes it for dead
    process.is_known = false;
    queues_[server.value()][kCoordinator].clear();
    queues_[kCoordinator][server.value()].clear();
    weights_.erase(server);
    Apply(agreement_.LoseServer(server));
  } else {
    Kill(server);
  }
}

void Simulation::CheckHolders() {
  if (may_lose_) return;
  for (const auto& [shard, entry] : agreement_.table()) {
    const bool is_held =
        std::any_of(processes_.begin(), processes_.end(), [id = shard](const Process& process) {
          const auto held = process.shards.find(id);
          return process.is_alive && process.is_known && held != process.shards.end() &&
                 held->second.is_full;
        });
    // Before the first entry has arrived anywhere there is nothing to hold.
    if (!is_held && published_[shard] > 0) {
      Fail(absl::StrCat("shard ", shard.value(), " is held by nobody"));
    }
  }
}

void Simulation::RunWithFaults(bool is_beyond) {
  may_lose_ = is_beyond;
  for (int step = 0; step < kStepsWithFaults && failure_.empty(); ++step) {
    if (step % 4 == 0) CountAnew();
    const uint32_t dice = Below(100);
    if (dice < 3) {
      Fault(is_beyond);
    } else if (dice < 10) {
      Detect();
    } else if (dice < 40) {
      Work();
    } else {
      Deliver();
    }
    CheckHolders();
  }
}

void Simulation::Settle() {
  for (uint32_t i = 0; i < kServersMax; ++i) {
    Detect();
    if (!target_ || !target_->contains(ServerId{i}) || processes_[i].is_known) continue;
    if (processes_[i].is_alive) Kill(ServerId{i});
    Add(ServerId{i}, 1);
  }
  int idle = 0;
  for (int step = 0; step < kStepsToSettle && failure_.empty(); ++step) {
    if (step % 16 == 0) Detect();
    if (!Deliver()) ++idle;
    Work();
    CheckHolders();
    if (idle > 200 && agreement_.shards_moving() == lost_.size()) return;
  }
  Fail("does not settle");
}

std::string Simulation::Complaint() const {
  const std::vector<ServerId> servers = Effective();
  if (servers.empty()) return "";
  std::set<std::string> racks;
  for (const ServerId server : servers) racks.insert(RackOf(server));
  if (racks.size() > 1 && agreement_.shards_in_one_rack() > 0)
    return absl::StrCat(agreement_.shards_in_one_rack(), " shards are in one rack");
  std::map<ServerId, size_t> primaries;
  size_t num_shards = 0;
  for (const auto& [shard, entry] : agreement_.table()) {
    if (lost_.contains(shard)) continue;
    ++num_shards;
    const auto is_target = [&](ServerId server) {
      return std::find(servers.begin(), servers.end(), server) != servers.end();
    };
    if (!entry.primary || !is_target(*entry.primary)) return "a primary outside of the target";
    ++primaries[*entry.primary];
    if (entry.followers.size() != NumWanted()) return "not the followers that were asked for";
    if (!std::all_of(entry.followers.begin(), entry.followers.end(), is_target)) {
      return "a follower outside of the target";
    }
    if (!entry.learners.empty()) return "a learner is left";
  }
  const double mean = static_cast<double>(num_shards) / static_cast<double>(servers.size());
  const double best = std::max(std::ceil(mean), mean * kImbalanceMax);
  for (const auto& [server, held] : primaries) {
    if (static_cast<double>(held) > best) {
      return absl::StrCat(ToString(server), " has ", held, " of ", num_shards, " shards");
    }
  }
  return "";
}

std::string FailureOf(uint32_t seed, bool is_beyond) {
  Simulation simulation(seed, seed % 3, 2 + seed / 3 % 4, 1 + seed / 12 % 7);
  simulation.RunWithFaults(is_beyond);
  simulation.Settle();
  return simulation.failure().empty() ? simulation.Complaint() : simulation.failure();
}

TEST(ReplicaAgreementSeedsTest, NothingIsLostWithinTheReplication) {
  for (uint32_t seed = 0; seed < 1500; seed += kSeedStride)
    ASSERT_EQ(FailureOf(seed, false), "") << "seed " << seed;
}

TEST(ReplicaAgreementSeedsTest, WhateverDiesWhatIsLeftBecomesWholeAgain) {
  for (uint32_t seed = 0; seed < 1500; seed += kSeedStride)
    ASSERT_EQ(FailureOf(seed, true), "") << "seed " << seed;
}

// Servers whose bits are set.
std::set<ServerId> Subset(uint64_t bits) {
  std::set<ServerId> servers;
  for (uint32_t i = 0; i < kServersMax; ++i) {
    if ((bits >> i & 1U) != 0) servers.insert(ServerId{i});
  }
  return servers;
}

// Copies that a new target cannot do without: those that a server lacks of its share, and those of
// which too few are left.
double LeastCopies(const ReplicaAgreement& agreement,
                   const std::set<ServerId>& target,
                   uint32_t replication) {
  const size_t num_copies = std::min<size_t>(replication + 1, target.size());
  const double share = static_cast<double>(agreement.table().size() * num_copies) /
                       static_cast<double>(target.size());
  std::map<ServerId, double> held;
  double left_too_few = 0;
  for (const auto& [shard, entry] : agreement.table()) {
    size_t stays = 0;
    for (const ServerId server : target) {
      if (entry.RoleOf(server) == ReplicaRole::kNone) continue;
      held[server] += 1;
      ++stays;
    }
    left_too_few += static_cast<double>(num_copies - std::min(num_copies, stays));
  }
  double lacking = 0;
  for (const ServerId server : target) lacking += std::max(0.0, share - held[server]);
  return std::max(lacking, left_too_few);
}

TEST(ReplicaAgreementSeedsTest, AResizeWithoutFaultsCopiesHardlyMoreThanItMust) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    const uint32_t replication = seed % 3;
    Simulation simulation(seed, replication, 2, 60);
    simulation.SetTarget({ServerId{0}, ServerId{1}});
    simulation.Settle();
    for (uint32_t i = 2; i < 5; ++i) simulation.Add(ServerId{i}, 1);
    std::mt19937 random(seed);
    for (int resize = 0; resize < 4; ++resize) {
      const std::set<ServerId> target = Subset(1 + random() % 31);
      const double least = LeastCopies(simulation.agreement(), target, replication);
      const size_t before = simulation.copies();
      simulation.SetTarget(target);

      simulation.Settle();

      ASSERT_EQ(simulation.failure() + simulation.Complaint(), "") << "seed " << seed;
      ASSERT_LE(static_cast<double>(simulation.copies() - before), 1.1 * least)
          << "seed " << seed << " resize " << resize;
    }
  }
}

}  // namespace
}  // namespace pushpull
