// SPDX-License-Identifier: Apache-2.0
//
// The part of JobCore about servers that leave: those of a smaller job, and those whose process was
// told to end although the job stays as large as it is (decisions/0030-warnings-are-used.md). Both
// keep what they hold until others have it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/colocated_server.h"
#include "runtime/coordinator/job_core.h"

namespace pushpull {

void JobCore::On(SessionId session, const AskToLeave& /*message*/) {
  Server* server = Find<Server>(session);
  if (server == nullptr)
    return Refuse(session, absl::FailedPreconditionError("only a server can ask to leave"));
  if (server->leave_turn > 0) return;
  const ServerId id = server->info.server;
  server->leave_turn = ++leave_turns_;
  Say(absl::StrCat(ToString(id), " is to end and asks to leave"));
  if (collection_ || failed_at_) return;
  if (primaries_.empty()) {  // nothing was ever placed: the next process has its place at once
    Send(session, Stop{absl::OkStatus(), options_.term});
    commands_.push_back(CloseSession{session});
    members_.erase(session);
    servers_.erase(id);
    return;
  }
  Retarget();
  ReleaseDrained();
  if (!Find<Server>(session)->is_leaving && target_.contains(id)) {
    Say(absl::StrCat(ToString(id), " keeps its shards for now: nobody is there to take them"),
        true);
  }
}

bool JobCore::IsWanted(ServerId server) const {
  const std::optional<WorkerId> worker = WorkerBeside(server);
  if (!worker) return server.value() < wanted_servers_;
  return options_.has_colocated_servers && workers_.IsWanted(*worker);
}

bool JobCore::AreFirstThere(uint32_t count) const {
  const std::set<ServerId> there = ServersThere();
  const std::set<ServerId> first = FirstServers(count);
  return std::includes(there.begin(), there.end(), first.begin(), first.end());
}

bool JobCore::HasLeavingServers() const {
  return std::any_of(servers_.begin(), servers_.end(), [this](const auto& entry) {
    return std::get<Server>(members_.at(entry.second).role).leave_turn > 0;
  });
}

// Whether everybody who could go on with another coordinator is gone or about to go: the whole job
// is taken down.
bool JobCore::IsNeededNoMore() const {
  if (phase_ == JobPhase::kSucceeded) return true;
  if (collection_) return members_.empty();
  return std::all_of(members_.begin(), members_.end(), [](const auto& entry) {
    const auto* server = std::get_if<Server>(&entry.second.role);
    return server != nullptr && server->leave_turn > 0;
  });
}

// Who shall hold the shards: the servers that are wanted, without those that have asked to leave.
// Where none of the others is there, whoever asked last keeps all until a replacement has come: the
// rest then has somebody to hand over to, and may be replaced meanwhile.
std::set<ServerId> JobCore::TargetServers() const {
  std::set<ServerId> target = FirstServers(wanted_servers_);
  for (uint32_t i = 0; options_.has_colocated_servers && i < workers_.wanted(); ++i)
    target.insert(ServerBeside(WorkerId{i}));
  bool has_heir = false;
  std::pair<uint64_t, ServerId> last{};  // turn, server
  for (const auto& [id, session] : servers_) {
    const uint64_t turn = std::get<Server>(members_.at(session).role).leave_turn;
    has_heir = has_heir || (turn == 0 && target.contains(id));
    if (turn == 0 || target.erase(id) == 0) continue;
    last = std::max(last, {turn, id});
  }
  if (!has_heir && last.first > 0) target.insert(last.second);
  return target;
}

// After a change of who is wanted, there, or about to leave. Not before the first entries are given
// out, and not when the job's values are final.
void JobCore::Retarget() {
  if (first_entries_ || phase_ == JobPhase::kSucceeded) return;
  std::set<ServerId> target = TargetServers();
  if (target == target_) return;
  target_ = std::move(target);
  Carry(replicas_.SetTarget(target_));
}

bool JobCore::MayGo(ServerId id, const Server& server) const {
  if (!IsWanted(id) && replicas_.is_drained(id)) return true;
  if (server.leave_turn == 0) return false;
  if (phase_ == JobPhase::kSucceeded) return !checkpoints_ || checkpoints_->is_idle();
  return !replicas_.table().empty() && !first_entries_ && replicas_.is_drained(id);
}

void JobCore::ReleaseDrained() {
  for (const auto& [id, session] : servers_) {
    Server* server = Find<Server>(session);
    if (server->is_leaving || !MayGo(id, *server)) continue;
    server->is_leaving = true;
    Say(absl::StrCat(ToString(id), " holds nothing any more and is released"));
    Send(session, Stop{absl::OkStatus(), options_.term});
  }
}

}  // namespace pushpull
