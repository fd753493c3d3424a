// SPDX-License-Identifier: Apache-2.0
//
// The members that have a session with the coordinator: their role, incarnation and last sign of
// life. The index of a server or worker has at most one session at a time. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"
#include "runtime/membership/job_status.h"
#include "runtime/membership/session.h"

namespace pushpull {

// Thread-compatible.
class MemberRegistry {
 public:
  struct Server {
    SessionId session;
    RegisterServer info;
    uint64_t table_version = 0;  // of the tensor table it has installed
  };
  struct Worker {
    SessionId session;
    RegisterWorker info;
    bool has_registered_tensors = false;
    bool is_leaving = false;  // it has announced its last step
  };
  using Departed = std::variant<std::monostate, Server, Worker>;

  // Every message of a session counts as a sign of life, even before it has registered.
  void OnReceived(SteadyTime now, SessionId session) { sessions_[session].last_heard = now; }
  // Nothing could be received for this long, which does not count as the members' silence.
  void Excuse(Duration own_silence);
  // Sessions without a message for longer than `limit`.
  std::vector<SessionId> FindSilent(SteadyTime now, Duration limit) const;

  // kFailedPrecondition: the index has a session already. kInvalidArgument: it cannot hold
  // anything.
  absl::Status Check(const RegisterServer& info) const;
  // Gives the session a role; neither the session nor the index may already be registered.
  void Add(SessionId session, const RegisterServer& info);
  void Add(SessionId session, const RegisterWorker& info);
  // The session is over; returns what it had registered as.
  Departed Remove(SessionId session);

  // Sets a member's rack, which overrides the one it reports itself, even if it registers later.
  // True: the member is registered and had another rack.
  bool SetRack(const MemberRack& member);

  void OnTensorsInstalled(ServerId server, uint64_t table_version) {
    servers_.at(server).table_version = table_version;
  }
  void OnTensorsRegistered(WorkerId worker) { workers_.at(worker).has_registered_tensors = true; }
  void OnLeaving(WorkerId worker) { workers_.at(worker).is_leaving = true; }

  // All sessions in the order in which they began, registered or not.
  std::vector<SessionId> sessions() const;
  // The session with which the same process registered before, if it still exists.
  std::optional<SessionId> EarlierSessionOf(const FromMember& registration) const;
  std::optional<ServerId> ServerAt(SessionId session) const { return MemberAt<ServerId>(session); }
  std::optional<WorkerId> WorkerAt(SessionId session) const { return MemberAt<WorkerId>(session); }
  // Null if none is registered under this index.
  const Server* Find(ServerId server) const { return FindIn(servers_, server); }
  const Worker* Find(WorkerId worker) const { return FindIn(workers_, worker); }
  const std::map<ServerId, Server>& servers() const { return servers_; }
  const std::map<WorkerId, Worker>& workers() const { return workers_; }

  std::set<ServerId> ServerIds() const;
  // Rises whenever a server registers or leaves.
  uint64_t servers_revision() const { return servers_revision_; }
  std::vector<ServerEndpoint> Endpoints() const;
  // Servers 0 to `count` - 1 are registered.
  bool HasFirstServers(uint32_t count) const;
  bool AllServersHave(uint64_t table_version) const;

 private:
  struct Session {
    SteadyTime last_heard;
    std::variant<std::monostate, ServerId, WorkerId> member;
  };

  template <typename Map>
  static const typename Map::mapped_type* FindIn(const Map& map,
                                                 const typename Map::key_type& key) {
    const auto it = map.find(key);
    return it == map.end() ? nullptr : &it->second;
  }
  template <typename Id>
  std::optional<Id> MemberAt(SessionId id) const {
    const Session* session = FindIn(sessions_, id);
    const Id* member = session == nullptr ? nullptr : std::get_if<Id>(&session->member);
    return member == nullptr ? std::nullopt : std::optional<Id>(*member);
  }

  std::map<SessionId, Session> sessions_;
  std::map<ServerId, Server> servers_;
  std::map<WorkerId, Worker> workers_;
  std::map<ServerId, std::string> server_racks_;  // set by SetRack
  std::map<WorkerId, std::string> worker_racks_;  // likewise
  uint64_t servers_revision_ = 0;
};

}  // namespace pushpull
