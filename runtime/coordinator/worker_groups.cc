// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/worker_groups.h"

#include <cstdint>
#include <string>

namespace pushpull {
namespace {

using Groups = std::vector<std::vector<GroupMember>>;

// Where the worker is, as far as groups are concerned; null: it pushes alone.
const std::string* PlaceOf(const RegisterWorker& worker, LocalReduce by) {
  if (by == LocalReduce::kNone || worker.group_address.empty()) return nullptr;
  if (by == LocalReduce::kHost) return &worker.node;  // all of one machine may leave it empty
  return worker.rack.empty() ? nullptr : &worker.rack;
}

// FNV-1a of 64 bits.
uint64_t HashOf(const std::string& place) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : place) hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001b3;
  return hash == 0 ? 1 : hash;
}

// The workers of each place, in groups of at most kGroupMembersMax.
Groups GroupsOf(const View& view, const MemberRegistry& members, LocalReduce by) {
  Groups groups;
  std::map<std::string, size_t> open;  // by place: the group that takes the next worker
  for (const ViewMember& member : view.members) {
    const auto* worker = members.Find(member.worker);
    const bool is_there = worker != nullptr && worker->info.incarnation == member.incarnation;
    if (!is_there || member.end_step) continue;
    const std::string* place = PlaceOf(worker->info, by);
    if (place == nullptr) continue;
    const auto [at, is_first] = open.try_emplace(*place, groups.size());
    if (is_first || groups[at->second].size() == kGroupMembersMax) {
      at->second = groups.size();
      groups.emplace_back();
    }
    groups[at->second].push_back({.worker = member.worker,
                                  .incarnation = member.incarnation,
                                  .from_step = member.from_step,
                                  .address = worker->info.group_address});
  }
  return groups;
}

}  // namespace

std::map<WorkerId, uint64_t> GroupsByPlace(const MemberRegistry& members, LocalReduce by) {
  std::map<WorkerId, uint64_t> groups;
  for (const auto& [id, worker] : members.workers()) {
    const std::string* place = PlaceOf(worker.info, by);
    if (place != nullptr) groups[id] = HashOf(*place);
  }
  return groups;
}

std::vector<std::pair<WorkerId, SetGroup>> WorkerGroups::Update(const View& view,
                                                                const MemberRegistry& members) {
  std::vector<std::pair<WorkerId, SetGroup>> news;
  if (by_ == LocalReduce::kNone) return news;
  std::map<WorkerId, Told> now;
  for (const auto& [id, worker] : members.workers()) now[id].session = worker.session;
  for (const std::vector<GroupMember>& group : GroupsOf(view, members, by_)) {
    if (group.size() < 2) continue;
    for (const GroupMember& member : group) now[member.worker].group = group;
  }
  for (const auto& [worker, told] : now) {
    const auto before = told_.find(worker);
    if (before == told_.end() || before->second != told)
      news.emplace_back(worker, SetGroup{told.group});
  }
  told_ = std::move(now);
  return news;
}

}  // namespace pushpull
