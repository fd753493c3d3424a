// SPDX-License-Identifier: Apache-2.0
//
// Local search from the current placement; see rebalance.h. Both plans are the same problem:
// placing replicas of shards on servers, where a replica on a server that already holds the shard
// costs nothing.
#include "runtime/shard/rebalance.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/string_view.h"

#include "runtime/base/check.h"

namespace pushpull {

namespace {

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();
// A step must gain at least this fraction of the load it starts from, so that rounding cannot keep
// the search going.
constexpr double kGainMin = 1e-9;
// A swap moves two shards: a gain below this fraction of the mean is not worth the bytes.
constexpr double kSwapGainMin = 0.01;
// Swaps help if few, unequal shards leave no useful move; then few swaps suffice.
constexpr int kSwapsMax = 64;

class Spread {
 public:
  Spread(std::span<const ShardHolders> shards, std::span<const TargetServer> targets);

  // Excludes the server for this shard.
  void Exclude(size_t shard, ServerId server);
  // Targets that hold the shard now and may be used for it, in addition to or in place of `leaves`.
  std::vector<size_t> FreeHolders(size_t shard, size_t leaves = kNowhere) const;
  size_t IndexOf(ServerId server) const;
  double LoadOf(size_t server) const { return servers_[server].bytes / servers_[server].weight; }

  // Adds a replica of the shard, on the server or (kNowhere) wherever PlaceRest and Balance put it.
  void Add(size_t shard, size_t server);
  void PlaceRest();
  void Balance();

  // Calls visit(shard, server) for each replica.
  template <typename Visitor>
  void ForEach(Visitor visit) const {
    for (const Replica& replica : replicas_) visit(replica.shard, servers_[replica.server].id);
  }

 private:
  struct Server {
    ServerId id;
    double weight = 1;
    size_t rack = 0;  // its number among all racks
    double bytes = 0;
  };
  struct Replica {
    size_t shard = 0;
    double bytes = 0;
    size_t server = kNowhere;
  };

  bool Holds(size_t shard, size_t server) const {
    return absl::c_linear_search(holders_[shard], server);
  }
  bool Uses(size_t shard, size_t server) const {
    return absl::c_linear_search(used_[shard], server);
  }
  // Whether a replica of the shard, which may come from `leaves`, must not be put on this server:
  // it already has one, or its rack has one while another rack without one can take it.
  bool IsBarred(size_t shard, size_t server, size_t leaves = kNowhere) const;
  bool IsOver(size_t server) const { return LoadOf(server) > load_max_ * (1 + kGainMin); }
  double LoadWith(size_t server, double bytes) const {
    return (servers_[server].bytes + bytes) / servers_[server].weight;
  }
  bool Fits(size_t server, double bytes) const {
    return LoadWith(server, bytes) <= load_max_ * (1 + kGainMin);
  }

  using Cost = std::tuple<bool, double, int, bool, double, double>;

  void Put(Replica& replica, size_t server);
  std::vector<size_t> Receivers(const Replica& replica) const;
  std::optional<Cost> CostOf(const Replica& replica, size_t to) const;
  bool MoveFrom(size_t giver);
  bool SwapFrom(size_t giver);

  std::vector<Server> servers_;
  std::vector<double> shard_bytes_;
  std::vector<std::vector<size_t>> holders_;  // by shard: the targets that hold it now
  std::vector<std::vector<size_t>> used_;     // by shard: where the plan has it
  std::vector<Replica> replicas_;
  size_t num_racks_ = 0;
  double load_max_ = 0;  // bytes per weight that a server may have
};

Spread::Spread(std::span<const ShardHolders> shards, std::span<const TargetServer> targets)
    : used_(shards.size()) {
  PUSHPULL_CHECK(!targets.empty());
  std::map<absl::string_view, size_t> racks;
  for (const TargetServer& target : targets) racks.emplace(target.rack, 0);
  for (auto& [name, number] : racks) number = num_racks_++;
  for (const TargetServer& target : targets) {
    PUSHPULL_CHECK(target.weight > 0);
    servers_.push_back({target.server, target.weight, racks.at(target.rack)});
  }
  // Ties go to the first server, so the order must not depend on the caller.
  absl::c_sort(servers_, [](const Server& a, const Server& b) { return a.id < b.id; });
  for (const ShardHolders& shard : shards) {
    std::vector<size_t> holders;
    if (shard.primary) holders.push_back(IndexOf(*shard.primary));
    for (const ServerId member : shard.members) holders.push_back(IndexOf(member));
    std::erase(holders, kNowhere);
    absl::c_sort(holders);
    holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
    holders_.push_back(std::move(holders));
    shard_bytes_.push_back(static_cast<double>(shard.bytes));
  }
}

void Spread::Exclude(size_t shard, ServerId server) {
  const size_t index = IndexOf(server);
  if (index != kNowhere) used_[shard].push_back(index);
}

std::vector<size_t> Spread::FreeHolders(size_t shard, size_t leaves) const {
  std::vector<size_t> free = holders_[shard];
  std::erase_if(free, [&](size_t server) { return IsBarred(shard, server, leaves); });
  return free;
}

bool Spread::IsBarred(size_t shard, size_t server, size_t leaves) const {
  if (Uses(shard, server)) return true;
  if (num_racks_ == 1) return false;
  bool is_in_rack = false;
  size_t racks = 0;  // in which the shard is without `leaves`
  const std::vector<size_t>& used = used_[shard];
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i] == leaves) continue;
    const size_t rack = servers_[used[i]].rack;
    is_in_rack = is_in_rack || rack == servers_[server].rack;
    const bool is_counted =
        std::any_of(used.begin(), used.begin() + static_cast<ptrdiff_t>(i), [&](size_t other) {
          return other != leaves && servers_[other].rack == rack;
        });
    if (!is_counted) ++racks;
  }
  return is_in_rack && racks < num_racks_;
}

size_t Spread::IndexOf(ServerId server) const {
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i].id == server) return i;
  }
  return kNowhere;
}

void Spread::Add(size_t shard, size_t server) {
  replicas_.push_back({shard, shard_bytes_[shard], kNowhere});
  if (server != kNowhere) Put(replicas_.back(), server);
}

void Spread::Put(Replica& replica, size_t server) {
  std::vector<size_t>& used = used_[replica.shard];
  if (replica.server != kNowhere) {
    servers_[replica.server].bytes -= replica.bytes;
    std::erase(used, replica.server);
  }
  replica.server = server;
  servers_[server].bytes += replica.bytes;
  used.push_back(server);
}

// Servers that already hold the shard, and the least loaded of all.
std::vector<size_t> Spread::Receivers(const Replica& replica) const {
  std::vector<size_t> receivers = FreeHolders(replica.shard, replica.server);
  size_t lightest = kNowhere;
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (IsBarred(replica.shard, i, replica.server)) continue;
    if (lightest == kNowhere || LoadWith(i, replica.bytes) < LoadWith(lightest, replica.bytes)) {
      lightest = i;
    }
  }
  if (lightest != kNowhere && !absl::c_linear_search(receivers, lightest))
    receivers.push_back(lightest);
  return receivers;
}

void Spread::PlaceRest() {
  double bytes = 0;
  double weight = 0;
  for (const Replica& replica : replicas_) bytes += replica.bytes;
  for (const Server& server : servers_) weight += server.weight;
  load_max_ = kImbalanceMax * bytes / weight;

  std::vector<size_t> homeless;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i].server == kNowhere) homeless.push_back(i);
  }
  // Replicas with a holder to go to come first; the others then fill what is left.
  const auto rank = [&](size_t i) {
    return std::make_tuple(holders_[replicas_[i].shard].empty(), -replicas_[i].bytes);
  };
  absl::c_stable_sort(homeless, [&](size_t a, size_t b) { return rank(a) < rank(b); });

  for (const size_t i : homeless) {
    Replica& replica = replicas_[i];
    const auto cost = [&](size_t server) {
      const bool is_held = Holds(replica.shard, server);
      return std::make_tuple(
          !(is_held && Fits(server, replica.bytes)), LoadWith(server, replica.bytes), !is_held);
    };
    const std::vector<size_t> receivers = Receivers(replica);
    PUSHPULL_CHECK(!receivers.empty());
    Put(replica,
        *absl::c_min_element(receivers, [&](size_t a, size_t b) { return cost(a) < cost(b); }));
  }
}

void Spread::Balance() {
  std::vector<bool> is_stuck(servers_.size(), false);
  int swaps = 0;
  // Every step lowers the higher load of two servers, so the search terminates; the bound is a
  // safeguard.
  for (size_t step = 0; step < 4 * replicas_.size() + servers_.size(); ++step) {
    size_t giver = kNowhere;
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (is_stuck[i] || !IsOver(i)) continue;
      if (giver == kNowhere || LoadOf(i) > LoadOf(giver)) giver = i;
    }
    if (giver == kNowhere) return;
    bool has_changed = MoveFrom(giver);
    if (!has_changed && swaps < kSwapsMax) {
      has_changed = SwapFrom(giver);
      ++swaps;
    }
    if (has_changed) {
      is_stuck.assign(servers_.size(), false);
    } else {
      is_stuck[giver] = true;
    }
  }
}

// Among moves that make the receiver no heavier than the giver is now, prefers one that leaves the
// receiver not overloaded, then one that copies no bytes, then one of the size of the giver's
// excess.
std::optional<Spread::Cost> Spread::CostOf(const Replica& replica, size_t to) const {
  const size_t giver = replica.server;
  const double load_after = LoadWith(to, replica.bytes);
  if (load_after >= LoadOf(giver) * (1 - kGainMin)) return std::nullopt;
  const double excess = servers_[giver].bytes - load_max_ * servers_[giver].weight;
  const bool fits = Fits(to, replica.bytes);
  const int more_bytes = (Holds(replica.shard, to) ? 0 : 1) - (Holds(replica.shard, giver) ? 0 : 1);
  const bool is_enough = replica.bytes >= excess * (1 - kGainMin);
  return Cost{!fits,
              fits ? 0 : std::max(load_after, LoadWith(giver, -replica.bytes)),
              more_bytes,
              !is_enough,
              is_enough ? replica.bytes : -replica.bytes,
              load_after};
}

bool Spread::MoveFrom(size_t giver) {
  std::optional<Cost> best;
  Replica* moved = nullptr;
  size_t receiver = kNowhere;
  for (Replica& replica : replicas_) {
    if (replica.server != giver || replica.bytes == 0) continue;
    for (const size_t to : Receivers(replica)) {
      const std::optional<Cost> cost = CostOf(replica, to);
      if (!cost || (best && *best <= *cost)) continue;
      best = cost;
      moved = &replica;
      receiver = to;
    }
  }
  if (moved == nullptr) return false;
  Put(*moved, receiver);
  return true;
}

// Exchanges a replica of the giver for a smaller one of another server.
bool Spread::SwapFrom(size_t giver) {
  const double gain_min = kSwapGainMin * load_max_ / kImbalanceMax;
  double best = LoadOf(giver) - gain_min;
  Replica* given = nullptr;
  Replica* taken = nullptr;
  for (Replica& ours : replicas_) {
    if (ours.server != giver) continue;
    for (Replica& theirs : replicas_) {
      const double less = ours.bytes - theirs.bytes;
      if (theirs.server == giver || less <= 0) continue;
      const double load = std::max(LoadWith(giver, -less), LoadWith(theirs.server, less));
      if (load >= best || IsBarred(ours.shard, theirs.server, giver) ||
          IsBarred(theirs.shard, giver, theirs.server)) {
        continue;
      }
      best = load;
      given = &ours;
      taken = &theirs;
    }
  }
  if (given == nullptr) return false;
  const size_t receiver = taken->server;
  Put(*given, receiver);
  Put(*taken, giver);
  return true;
}

}  // namespace

std::vector<ServerId> PlanPrimaries(std::span<const ShardHolders> shards,
                                    std::span<const TargetServer> targets) {
  Spread spread(shards, targets);
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    const auto& primary = shards[shard].primary;
    spread.Add(shard, primary ? spread.IndexOf(*primary) : kNowhere);
  }
  spread.PlaceRest();
  spread.Balance();

  std::vector<ServerId> primaries(shards.size());
  spread.ForEach([&](size_t shard, ServerId server) { primaries[shard] = server; });
  return primaries;
}

std::vector<std::vector<ServerId>> PlanFollowers(std::span<const ShardHolders> shards,
                                                 std::span<const ServerId> primaries,
                                                 std::span<const TargetServer> targets,
                                                 uint32_t replication) {
  PUSHPULL_CHECK(primaries.size() == shards.size());
  const size_t num_followers = std::min<size_t>(replication, targets.size() - 1);
  Spread spread(shards, targets);
  for (size_t shard = 0; shard < shards.size(); ++shard) spread.Exclude(shard, primaries[shard]);

  // Shards with no more holders than they need keep them; the others use the least loaded.
  std::vector<size_t> order(shards.size());
  absl::c_iota(order, size_t{0});
  absl::c_stable_sort(order, [&](size_t a, size_t b) {
    return spread.FreeHolders(a).size() < spread.FreeHolders(b).size();
  });
  for (const size_t shard : order) {
    for (size_t slot = 0; slot < num_followers; ++slot) {
      const std::vector<size_t> holders = spread.FreeHolders(shard);
      const auto lightest = absl::c_min_element(
          holders, [&](size_t a, size_t b) { return spread.LoadOf(a) < spread.LoadOf(b); });
      spread.Add(shard, lightest == holders.end() ? kNowhere : *lightest);
    }
  }
  spread.PlaceRest();
  spread.Balance();

  std::vector<std::vector<ServerId>> followers(shards.size());
  spread.ForEach([&](size_t shard, ServerId server) { followers[shard].push_back(server); });
  for (std::vector<ServerId>& list : followers) absl::c_sort(list);
  return followers;
}

}  // namespace pushpull
