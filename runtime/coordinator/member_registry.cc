// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/member_registry.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace pushpull {

void MemberRegistry::Excuse(Duration own_silence) {
  for (auto& [id, session] : sessions_) session.last_heard += own_silence;
}

std::vector<SessionId> MemberRegistry::FindSilent(SteadyTime now, Duration limit) const {
  std::vector<SessionId> silent;
  for (const auto& [id, session] : sessions_)
    if (now - session.last_heard > limit) silent.push_back(id);
  return silent;
}

absl::Status MemberRegistry::Check(const RegisterServer& info) const {
  const std::string who = ToString(info.server);
  if (servers_.contains(info.server))
    return absl::FailedPreconditionError(absl::StrCat(who, " is already registered"));
  if (info.weight > 0 && info.lanes > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      who, ": weight and threads must be above 0, are ", info.weight, " and ", info.lanes));
}

void MemberRegistry::Add(SessionId session, const RegisterServer& info) {
  ++servers_revision_;
  sessions_[session].member = info.server;
  servers_[info.server] = {.session = session, .info = info};
  const auto rack = server_racks_.find(info.server);
  if (rack != server_racks_.end()) servers_[info.server].info.rack = rack->second;
}

void MemberRegistry::Add(SessionId session, const RegisterWorker& info) {
  sessions_[session].member = info.worker;
  workers_[info.worker] = {.session = session, .info = info};
  const auto rack = worker_racks_.find(info.worker);
  if (rack != worker_racks_.end()) workers_[info.worker].info.rack = rack->second;
}

bool MemberRegistry::SetRack(const MemberRack& member) {
  const auto set = [&](auto& members, auto& racks, auto id) {
    racks[id] = member.rack;
    const auto found = members.find(id);
    return found != members.end() &&
           std::exchange(found->second.info.rack, member.rack) != member.rack;
  };
  return member.is_server ? set(servers_, server_racks_, ServerId{member.index})
                          : set(workers_, worker_racks_, WorkerId{member.index});
}

MemberRegistry::Departed MemberRegistry::Remove(SessionId session) {
  Departed departed;
  if (const std::optional<ServerId> server = ServerAt(session)) {
    ++servers_revision_;
    departed = std::move(servers_.extract(*server).mapped());
  } else if (const std::optional<WorkerId> worker = WorkerAt(session)) {
    departed = std::move(workers_.extract(*worker).mapped());
  }
  sessions_.erase(session);
  return departed;
}

std::optional<SessionId> MemberRegistry::EarlierSessionOf(const FromMember& registration) const {
  const auto session_of = [](const auto* known, Incarnation incarnation) {
    const bool is_same = known != nullptr && known->info.incarnation == incarnation;
    return is_same ? std::optional(known->session) : std::nullopt;
  };
  if (const auto* server = std::get_if<RegisterServer>(&registration))
    return session_of(Find(server->server), server->incarnation);
  if (const auto* worker = std::get_if<RegisterWorker>(&registration))
    return session_of(Find(worker->worker), worker->incarnation);
  return std::nullopt;
}

std::vector<SessionId> MemberRegistry::sessions() const {
  std::vector<SessionId> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  return ids;
}

std::set<ServerId> MemberRegistry::ServerIds() const {
  std::set<ServerId> ids;
  for (const auto& [id, server] : servers_) ids.insert(id);
  return ids;
}

std::vector<ServerEndpoint> MemberRegistry::Endpoints() const {
  std::vector<ServerEndpoint> endpoints;
  for (const auto& [id, server] : servers_) {
    const RegisterServer& info = server.info;
    endpoints.push_back({id, info.incarnation, info.data_address, info.lanes});
  }
  return endpoints;
}

bool MemberRegistry::HasFirstServers(uint32_t count) const {
  const auto above = servers_.lower_bound(ServerId{count});
  return std::distance(servers_.begin(), above) == static_cast<ptrdiff_t>(count);
}

bool MemberRegistry::AllServersHave(uint64_t table_version) const {
  return absl::c_all_of(
      servers_, [&](const auto& server) { return server.second.table_version >= table_version; });
}

}  // namespace pushpull
