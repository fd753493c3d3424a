// SPDX-License-Identifier: Apache-2.0
//
// JobCore's first minute under a coordinator that was started anew: members say what they know,
// then the job goes on from there (protocol.md section 6). Also how a coordinator that has been
// superseded keeps its hands off.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/coordinator/job_core.h"

namespace pushpull {

// Answers to an earlier coordinator, or about its epochs, mean nothing to this one.
bool JobCore::IsOfThisTerm(const FromMember& message) {
  return !std::holds_alternative<TensorsInstalled>(message) &&
         !std::holds_alternative<ViewAnswer>(message) &&
         !std::holds_alternative<StepsHeld>(message) &&
         !std::holds_alternative<Promises>(message) &&
         !std::holds_alternative<MemberCaughtUp>(message) &&
         !std::holds_alternative<HandedOver>(message) &&
         !std::holds_alternative<ShardCopies>(message) &&
         !std::holds_alternative<Rebuilt>(message) && !std::holds_alternative<Captured>(message) &&
         !std::holds_alternative<Restored>(message);
}

bool JobCore::IsSuperseded(SessionId session, Term promised) {
  highest_term_ = std::max(highest_term_, promised);
  if (highest_term_ <= options_.term) return false;
  Refuse(session,
         absl::FailedPreconditionError(absl::StrCat("this coordinator has term ",
                                                    options_.term.value(),
                                                    ", one of term ",
                                                    highest_term_.value(),
                                                    " has taken over")));
  return true;
}

// A member of a view that has gone on without it: its steps cannot count any more.
bool JobCore::IsGivenUp(const RegisterWorker& worker) const {
  if (collection_ || !worker.is_member) return false;
  const ViewMember* member = agreement_.active().Find(worker.worker);
  return member == nullptr || member->incarnation != worker.incarnation;
}

void JobCore::AskForReport(SessionId session, Term promised) {
  if (!first_word_at_) first_word_at_ = now_;
  if (promised > Term{}) Send(session, Collect{options_.term});
}

void JobCore::On(SessionId session, const ServerReport& message) {
  Server* server = Find<Server>(session);
  if (server == nullptr || message.term != options_.term) return;
  server->table_version = std::max(server->table_version, uint64_t{message.tensors.size()});
  const uint64_t seen =
      std::max(message.active.number, message.proposed ? message.proposed->number : 0);
  if (collection_) {
    collection_->Add(server->info.server, message);
    return RecoverIfKnown();
  }
  // It comes late, and may know of a view that nobody else has told of.
  if (started_at_ && seen > agreement_.active().number) Carry(agreement_.Renew(seen));
}

void JobCore::On(SessionId session, const WorkerReport& message) {
  const Worker* worker = Find<Worker>(session);
  if (worker == nullptr || message.term != options_.term || !collection_) return;
  collection_->Add(worker->info, message);
  RecoverIfKnown();
}

void JobCore::RecoverIfKnown() {
  if (!collection_ || failed_at_) return;
  const Duration waited = now_ - first_word_at_.value_or(now_);
  if (!collection_->has_state()) {
    // A new start of the whole job, or one that had not come far.
    const bool all_known = std::all_of(servers_.begin(), servers_.end(), [&](const auto& server) {
      return Find<Server>(server.second)->info.promised == Term{} ||
             collection_->HasSpoken(server.first);
    });
    if (!AreFirstThere(options_.settings.servers) || !all_known) return;
    const bool may_come = options_.recovery == JobCoreOptions::Recovery::kExpected;
    if (may_come && waited < options_.collect_grace) return;
    collection_.reset();
    return PrepareCatalog();
  }
  const CollectedJob job = collection_->Decide();
  if (!job.has_begun) {
    const uint32_t wanted = job.wanted.revision > 0 ? job.wanted.servers : wanted_servers_;
    if (AreFirstThere(wanted) && waited >= options_.collect_grace) Recover(job);
    return;
  }
  if (!collection_->IsComplete() && waited < options_.collect_grace) return;
  const std::vector<ShardId> unheld = collection_->Unheld();
  // Where everybody has spoken, nobody will come who has them.
  const bool may_come = !collection_->IsComplete() || !options_.repairs_losses;
  if (!unheld.empty() && may_come && waited < options_.loss_grace) {
    if (std::exchange(has_named_missing_, true)) return;
    return Say(absl::StrCat("waiting up to ",
                            ToSeconds(options_.loss_grace),
                            " s for the servers that hold shard ",
                            unheld.front().value(),
                            " and ",
                            unheld.size() - 1,
                            " more"),
               true);
  }
  Recover(job);
}

void JobCore::Recover(const CollectedJob& job) {
  absl::StatusOr<TensorCatalog> catalog = TensorCatalog::FromPlaced(job.tensors);
  if (!catalog.ok()) return Fail(std::string(catalog.status().message()));
  catalog_ = *std::move(catalog);
  if (job.wanted.revision > 0) {
    wanted_servers_ = job.wanted.servers;
    workers_.SetWanted(job.wanted.workers);
  }
  wanted_revision_ = std::max(wanted_revision_, job.wanted.revision + 1);
  View view = job.view;
  if (view.number == 0) view.consistency = options_.consistency;
  agreement_ = ViewAgreement::FromCollected(
      ServersThere(), std::move(view), job.last_view_number, job.established);
  collection_.reset();
  if (!job.has_begun) return PrepareCatalog();
  if (job.tensors.empty()) return Fail("no server is left that knows the job's tensors");
  Say(absl::StrCat("recovered in term ",
                   options_.term.value(),
                   ": ",
                   servers_.size(),
                   " servers, ",
                   job.view.members.size(),
                   " workers in view ",
                   job.view.number,
                   ", ",
                   job.entries.size(),
                   " shards"));
  started_at_ = now_;
  phase_ = JobPhase::kRunning;
  RestoreShards(job);
  RestoreWorkers(job);
}

void JobCore::RestoreShards(const CollectedJob& job) {
  for (const auto& [id, session] : servers_) {
    const Server& server = *Find<Server>(session);
    if (server.table_version < catalog_.version())
      Send(session, InstallTensors{catalog_.version(), catalog_.tensors()});
    replicas_.AddServer(id, server.info.weight);  // nothing follows before there are shards
  }
  target_ = TargetServers();
  replicas_.SetTarget(target_);
  UpdateServers();
  Carry(agreement_.Renew(job.last_view_number));
  primaries_.assign(kShardCount, ServerId{});  // every shard that has chunks is placed
  std::vector<ReplicaAgreement::EarlierEntry> earlier;
  for (uint32_t i = 0; i < kShardCount; ++i) {
    const uint64_t bytes = catalog_.shard_bytes()[i];
    if (bytes == 0) continue;
    const auto entry = job.entries.find(ShardId{i});
    earlier.push_back(
        {ShardId{i}, bytes, entry == job.entries.end() ? ReplicaSet{} : entry->second});
  }
  Carry(replicas_.Restore(earlier));
  for (const ShardId shard : losses_.Waiting()) losses_.StopWaiting(shard);  // it was waited for
}

// Who is there takes its place in the view again; who is not has died meanwhile.
void JobCore::RestoreWorkers(const CollectedJob& job) {
  for (const ViewMember& member : job.view.members) {
    const Worker* worker = Find<Worker>(SessionOfWorker(member.worker));
    if (worker != nullptr && worker->info.incarnation == member.incarnation) continue;
    const bool is_released = member.is_released || !workers_.IsWanted(member.worker);
    if (member.end_step) workers_.OnLeft(member.worker, is_released);
    Say(absl::StrCat(ToString(member.worker),
                     member.end_step ? " has left" : " is lost: it did not come back in time"),
        !member.end_step);
    Carry(agreement_.Remove(member.worker));
  }
  std::vector<SessionId> given_up;
  for (const auto& [session, member] : members_) {
    const auto* worker = std::get_if<Worker>(&member.role);
    if (worker == nullptr) continue;
    if (IsGivenUp(worker->info)) given_up.push_back(session);
    Send(session, Release{!workers_.IsWanted(worker->info.worker)});
  }
  for (const SessionId session : given_up)
    Refuse(session, absl::AbortedError("this worker was given up and is no longer a member"));
  for (const auto& [session, leave] : std::exchange(deferred_leaves_, {})) On(session, leave);
  RegisterWaiting();
}

// It was admitted, but the word of it was lost with the coordinator that gave it.
void JobCore::RemindOfMembership(SessionId session, const Worker& worker) {
  const ViewMember* member = agreement_.active().Find(worker.info.worker);
  const bool is_unaware =
      member != nullptr && !worker.info.is_member && member->incarnation == worker.info.incarnation;
  if (!is_unaware) return;
  // Initial values count only where there are none yet.
  Send(session,
       TensorsRegistered{catalog_.tensors(), member->from_step, member->from_step == Step{0}});
}

}  // namespace pushpull
