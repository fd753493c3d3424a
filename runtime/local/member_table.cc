// SPDX-License-Identifier: Apache-2.0
#include "runtime/local/member_table.h"

#include <algorithm>
#include <cstdio>

#include "runtime/local/status_rules.h"

namespace pushpull {
namespace {

// How long a server that the coordinator has lost has to end by itself.
constexpr Duration kUnlistedGrace = std::chrono::seconds(3);

}  // namespace

absl::Status MemberTable::Start(JobRole role, int index, const absl::StatusOr<ProcessSpec>& spec) {
  if (!spec.ok()) return spec.status();
  const std::string name = MemberName(role, index);
  LocalMember& member = members_.try_emplace(name, role, index, loop_, guardian_).first->second;
  member.is_done = false;
  member.is_listed = false;
  member.unlisted_since.reset();
  absl::Status started = member.process.Start(
      *spec,
      workdir_.log_path(name),
      {.on_output = [this, &member](const std::string& line) { events_.on_output(member, line); },
       .on_ready =
           [this, &member] {
             PublishEndpoints();
             events_.on_ready(member);
           },
       .on_end =
           [this, &member](const ProcessEnd& end) {
             PublishEndpoints();
             events_.on_end(member, end);
           }});
  if (started.ok()) PublishEndpoints();
  return started;
}

LocalMember* MemberTable::Find(const std::string& name) {
  const auto it = members_.find(name);
  return it == members_.end() ? nullptr : &it->second;
}

std::vector<const MemberProcess*> MemberTable::Running(const std::vector<JobRole>& roles) const {
  std::vector<const MemberProcess*> running;
  for (const auto& [name, member] : members_) {
    const JobRole role = member.process.role();
    const bool has_role = std::find(roles.begin(), roles.end(), role) != roles.end();
    if (has_role && member.process.is_running()) running.push_back(&member.process);
  }
  return running;
}

bool MemberTable::AreServersReady() const {
  return std::all_of(members_.begin(), members_.end(), [](const auto& entry) {
    const MemberProcess& process = entry.second.process;
    return process.role() != JobRole::kServer || process.has_been_ready();
  });
}

bool MemberTable::AreWorkersDone() const {
  return std::all_of(members_.begin(), members_.end(), [](const auto& entry) {
    return entry.second.process.role() != JobRole::kWorker || entry.second.is_done;
  });
}

std::vector<int> MemberTable::Missing(JobRole role, const JobStatus& status) const {
  const uint32_t desired =
      role == JobRole::kWorker ? status.desired_workers : status.desired_servers;
  std::vector<int> missing;
  for (int i = 0; static_cast<uint32_t>(i) < desired; ++i) {
    const auto it = members_.find(MemberName(role, i));
    if (it == members_.end() || IsReleased(it->second, status)) missing.push_back(i);
  }
  return missing;
}

// A worker that ended in order because it was not desired at that moment. A released server is
// removed when it ends.
bool MemberTable::IsReleased(const LocalMember& member, const JobStatus& status) const {
  return member.process.role() == JobRole::kWorker && member.is_done &&
         !member.process.is_running() && WasReleased(status, member.process.endpoint().index);
}

void MemberTable::Follow(const JobStatus& status) {
  bool has_changed = false;
  for (const WorkerStatus& worker : status.workers) {
    LocalMember* member = Find(ToString(worker.worker));
    const auto pid = static_cast<pid_t>(worker.pid);
    if (member == nullptr || !member->process.IsInGroup(pid)) continue;  // of an earlier start
    has_changed |= member->process.SetWorkerAddress(pid, worker.metrics_address);
    const bool is_given_up = !worker.is_alive && !worker.has_left && !worker.was_released;
    if (is_given_up) member->process.KillGroup();
  }
  if (has_changed) PublishEndpoints();
  for (auto& [name, member] : members_) {
    const MemberProcess& process = member.process;
    if (process.role() == JobRole::kServer && process.is_running()) FollowServer(member, status);
  }
}

// A released server ends by itself; one that the coordinator has lost may not notice.
void MemberTable::FollowServer(LocalMember& server, const JobStatus& status) {
  const Endpoint& endpoint = server.process.endpoint();
  if (IsListed(status, endpoint)) {
    server.is_listed = true;
    server.unlisted_since.reset();
  } else if (server.is_listed && !IsAwaited(status, endpoint.index)) {
    if (!server.unlisted_since) server.unlisted_since = loop_.Now();
    if (loop_.Now() - *server.unlisted_since >= kUnlistedGrace) server.process.KillGroup();
  }
}

void MemberTable::Reset(int servers, int workers) {
  std::erase_if(members_, [&](const auto& entry) {
    const MemberProcess& process = entry.second.process;
    return process.index() >= (process.role() == JobRole::kWorker ? workers : servers);
  });
  for (auto& [name, member] : members_) {
    member.process.ResetReady();
    member.is_done = false;
  }
}

void MemberTable::PublishEndpoints() const {
  std::vector<Endpoint> endpoints;
  for (const auto& [name, member] : members_) {
    if (member.process.is_running()) endpoints.push_back(member.process.endpoint());
  }
  // A full disk must not end the job; `status` and scrapers then read the previous list.
  const absl::Status written = workdir_.WriteEndpoints(endpoints);
  if (!written.ok()) std::fprintf(stderr, "pushpull: %s\n", std::string(written.message()).c_str());
}

}  // namespace pushpull
