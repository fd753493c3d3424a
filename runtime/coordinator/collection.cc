// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/collection.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

namespace pushpull {
namespace {

void TakeNewest(const std::vector<std::pair<ShardId, ReplicaSet>>& entries,
                std::map<ShardId, ReplicaSet>& newest) {
  for (const auto& [shard, entry] : entries) {
    ReplicaSet& held = newest[shard];
    if (entry.epoch > held.epoch) held = entry;
  }
}

void TakeNewest(const DesiredSize& word, DesiredSize& newest) {
  if (word.revision > newest.revision) newest = word;
}

}  // namespace

bool Collection::has_state() const {
  return Tensors() != nullptr || absl::c_any_of(workers_, [](const auto& worker) {
           return !worker.second.report.entries.empty();
         });
}

Collection::Missing Collection::FindMissing() const {
  Missing missing;
  for (const auto& [shard, entry] : NewestEntries()) {
    if (entry.primary) missing.servers.insert(*entry.primary);
    missing.servers.insert(entry.followers.begin(), entry.followers.end());
    missing.servers.insert(entry.learners.begin(), entry.learners.end());
  }
  std::erase_if(missing.servers, [&](ServerId server) { return servers_.contains(server); });
  const View view = NewestView();
  for (const ViewMember& member : view.members) {
    // A worker that has left need not be present.
    if (!member.end_step && !workers_.contains(member.worker)) missing.workers.push_back(member);
  }
  return missing;
}

std::vector<ShardId> Collection::Unheld() const {
  std::vector<ShardId> unheld;
  if (!HasBegun(NewestView())) return unheld;
  for (const auto& [shard, entry] : NewestEntries()) {
    const auto holds = [&, id = shard, &newest = entry](const auto& server) {
      const ReplicaRole role = newest.RoleOf(server.first);
      if (role != ReplicaRole::kPrimary && role != ReplicaRole::kFollower) return false;
      return absl::c_any_of(server.second.promises, [&](const Promise& promise) {
        return promise.shard == id && promise.is_full;
      });
    };
    if (absl::c_none_of(servers_, holds)) unheld.push_back(shard);
  }
  return unheld;
}

CollectedJob Collection::Decide() const {
  CollectedJob job;
  if (const std::vector<PlacedTensor>* tensors = Tensors()) job.tensors = *tensors;
  job.entries = NewestEntries();
  job.view = NewestView();
  job.has_begun = HasBegun(job.view);
  job.has_contributors = HasContributors(job.view);
  for (const auto& [server, report] : servers_) {
    job.last_view_number = std::max(job.last_view_number, report.active.number);
    if (report.proposed)
      job.last_view_number = std::max(job.last_view_number, report.proposed->number);
    TakeNewest(report.desired, job.desired);
  }
  for (const auto& [worker, word] : workers_) {
    TakeNewest(word.report.desired, job.desired);
    const ViewMember* member = job.view.Find(worker);
    const bool is_there = member != nullptr && member->incarnation == word.incarnation;
    if (is_there && word.report.step >= member->from_step) job.established.insert(worker);
  }
  return job;
}

std::map<ShardId, ReplicaSet> Collection::NewestEntries() const {
  std::map<ShardId, ReplicaSet> newest;
  for (const auto& [server, report] : servers_) TakeNewest(report.entries, newest);
  for (const auto& [worker, word] : workers_) TakeNewest(word.report.entries, newest);
  return newest;
}

View Collection::NewestView() const {
  View newest;
  for (const auto& [server, report] : servers_) {
    if (report.active.number > newest.number) newest = report.active;
  }
  for (const auto& [server, report] : servers_) {
    const bool is_newer = report.proposed && report.proposed->number > newest.number;
    if (is_newer && IsAcceptedByAll(*report.proposed)) newest = *report.proposed;
  }
  return newest;
}

// True: every server that could have rejected the view has accepted it, so an earlier coordinator
// may have activated it. A server that holds no shard does not count: none of its chunks can have
// passed the joiner's first step.
bool Collection::IsAcceptedByAll(const View& proposed) const {
  std::set<ServerId> members;
  for (const auto& [shard, entry] : NewestEntries()) {
    if (entry.primary) members.insert(*entry.primary);
    members.insert(entry.followers.begin(), entry.followers.end());
  }
  return absl::c_all_of(members, [&](ServerId server) {
    const auto report = servers_.find(server);
    return report != servers_.end() && report->second.proposed == proposed;
  });
}

const std::vector<PlacedTensor>* Collection::Tensors() const {
  for (const auto& [server, report] : servers_) {
    if (!report.tensors.empty()) return &report.tensors;
  }
  return nullptr;
}

bool Collection::HasBegun(const View& view) const {
  const auto has_values = [](const auto& server) {
    return absl::c_any_of(server.second.promises,
                          [](const Promise& promise) { return promise.seq > 0; });
  };
  return HasContributors(view) || absl::c_any_of(servers_, has_values);
}

bool Collection::HasContributors(const View& view) const {
  const auto is_member = [](const auto& worker) { return worker.second.is_member; };
  return view.number > 0 || absl::c_any_of(workers_, is_member);
}

}  // namespace pushpull
