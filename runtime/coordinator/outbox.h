// SPDX-License-Identifier: Apache-2.0
//
// The commands that follow from one event, in the order in which they are carried out. The parts of
// the coordinator's core share one, so that a member receives what they decide in the order of the
// decisions. Pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/coordinator/command.h"
#include "runtime/coordinator/member_registry.h"

namespace pushpull {

// Thread-compatible.
class Outbox {
 public:
  // `members` is used, not owned, and outlives this object.
  Outbox(const MemberRegistry& members, Term term) : members_(members), term_(term) {}

  void Send(SessionId session, ToMember message) { Add(SendMessage{session, std::move(message)}); }
  // Dropped where the member has no session.
  void Send(ServerId server, ToMember message);
  void Send(WorkerId worker, ToMember message);
  void SendToServers(const ToMember& message);
  void SendToWorkers(const ToMember& message);
  void SendToMembers(const ToMember& message) {
    SendToServers(message);
    SendToWorkers(message);
  }
  // Ends a session that may not go on, with a message that says why.
  void Refuse(SessionId session, absl::Status why);
  void Log(std::string text) { Add(Announce{false, std::move(text)}); }
  void Warn(std::string text) { Add(Announce{true, std::move(text)}); }
  void Add(Command command) { commands_.push_back(std::move(command)); }

  // Everything since the last call.
  std::vector<Command> Take() { return std::exchange(commands_, {}); }

 private:
  const MemberRegistry& members_;
  const Term term_;
  std::vector<Command> commands_;
};

}  // namespace pushpull
