// SPDX-License-Identifier: Apache-2.0
//
// The members that have a session with the coordinator: their role, incarnation and last sign of
// life. A server's or worker's index has at most one session at a time. Pure.
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
    uint64_t table_version = 0;  // of the tensor table that it has installed
  };
  struct Worker {
    SessionId session;
    RegisterWorker info;
    bool has_registered_tensors = false;
    bool is_leaving = false;  // it has announced its last step
  };
  using Departed = std::variant<std::monostate, Server, Worker>;

  // Every message of a session counts as a sign of life, also before it has registered.
  void OnReceived(SteadyTime now, SessionId session) { sessions_[session].last_heard = now; }
  // Nothing could be received for so long, which does not count as the members' silence.
  void Excuse(Duration own_silence);
  // Sessions without a message for longer than `limit`.
  std::vector<SessionId> FindSilent(SteadyTime now, Duration limit) const;

  // kFailedPrecondition: the index has a session already. kInvalidArgument: it can hold nothing.
  absl::Status Check(const RegisterServer& info) const;
  // The session takes a role; neither the session nor the index may have registered before.
  void Add(SessionId session, const RegisterServer& info);
  void Add(SessionId session, const RegisterWorker& info);
  // The session is over; the result is what it had registered as.
  Departed Remove(SessionId session);

  // The rack of a member, which counts instead of what it says itself, also of one that registers
  // later. True: a registered one had another.
  bool SetRack(const MemberRack& member);

  void OnTensorsInstalled(ServerId server, uint64_t table_version) {
    servers_.at(server).table_version = table_version;
  }
  void OnTensorsRegistered(WorkerId worker) { workers_.at(worker).has_registered_tensors = true; }
  void OnLeaving(WorkerId worker) { workers_.at(worker).is_leaving = true; }

  // All of them, in the order in which they began, registered or not.
  std::vector<SessionId> sessions() const;
  // The session that the same process has registered with before, where that is still there.
  std::optional<SessionId> EarlierSessionOf(const FromMember& registration) const;
  std::optional<ServerId> ServerAt(SessionId session) const { return MemberAt<ServerId>(session); }
  std::optional<WorkerId> WorkerAt(SessionId session) const { return MemberAt<WorkerId>(session); }
  // Null where none is registered under this index.
  const Server* Find(ServerId server) const { return FindIn(servers_, server); }
  const Worker* Find(WorkerId worker) const { return FindIn(workers_, worker); }
  const std::map<ServerId, Server>& servers() const { return servers_; }
  const std::map<WorkerId, Worker>& workers() const { return workers_; }

  std::set<ServerId> ServerIds() const;
  // Rises whenever a server registers or goes.
  uint64_t servers_revision() const { return servers_revision_; }
  std::vector<ServerEndpoint> Endpoints() const;
  // The servers 0 to `count` - 1 are registered.
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
  std::map<ServerId, std::string> server_racks_;  // that were set
  std::map<WorkerId, std::string> worker_racks_;  // likewise
  uint64_t servers_revision_ = 0;
};

}  // namespace pushpull
