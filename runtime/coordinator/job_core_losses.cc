// SPDX-License-Identifier: Apache-2.0
//
// The part of JobCore for shards whose last holder is lost: what loss_recovery.h decides, in
// messages to workers and to the servers that take over (decisions/0020).
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "runtime/coordinator/job_core.h"

namespace pushpull {

// Of a mode without steps it is not known which updates a copy has in it; with backup workers and
// gated steps, who counted in the step that was lost with its leading chunk.
bool JobCore::MayRepair() const {
  const Consistency& active = agreement_.active().consistency;
  return options_.repairs_losses && active.is_sync() && !active.is_led();
}

std::string JobCore::WhyNotRepaired() const {
  const Consistency& active = agreement_.active().consistency;
  if (active.gated)
    return "with spec.sync.gated it is not known who counts in the step that was lost";
  if (active.is_sync())
    return "with backup workers it is not known who was admitted to the step that was lost";
  return absl::StrCat("in the mode ",
                      NameOf(active.mode),
                      " it is not known which updates the workers' copies have in them");
}

void JobCore::BeginRepair(const std::vector<ShardId>& lost) {
  std::map<ShardId, std::vector<ChunkId>> chunks;
  for (const ShardId shard : lost) chunks[shard] = {};
  for (const PlacedTensor& tensor : catalog_.tensors()) {
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      const auto of_shard = chunks.find(tensor.shards[i]);
      if (of_shard != chunks.end()) of_shard->second.emplace_back(tensor.first_chunk.value() + i);
    }
  }
  std::map<std::optional<ServerId>, std::map<ShardId, uint64_t>> by_server;
  for (auto& [shard, ids] : chunks) {
    const std::vector<ServerId>& holders = replicas_.table().at(shard).followers;
    std::optional<ServerId> holder;
    if (!holders.empty()) holder = holders.front();
    by_server[holder][shard] = ids.size();
    losses_.Lose(now_, shard, std::move(ids), true);
  }
  for (const auto& [server, shards] : by_server) loss_log_.Begin(now_, server, shards, true);
  Say(absl::StrCat(lost.size(),
                   lost.size() == 1 ? " shard has" : " shards have",
                   " no server left that holds their state, the first is shard ",
                   lost.front().value(),
                   ": waiting up to ",
                   ToSeconds(options_.loss_grace),
                   " s for it, then taking what the workers have"),
      true);
}

// Carries the repair as far as it goes without another word from anybody.
void JobCore::AdvanceLosses() {
  if (!losses_.is_under_way()) return;
  bool has_lost_workers = true;
  while (has_lost_workers && !failed_at_ && !collection_ && phase_ != JobPhase::kSucceeded) {
    TakeRecovered();
    StopWaitingForReplaced();
    if (!losses_.is_under_way()) return AdmitReady();
    const std::map<WorkerId, SessionId> workers = WorkersOfView();
    const LossRecovery::Orders orders = losses_.Advance(now_, LossView(workers));
    for (const ShardId shard : losses_.Lost()) {
      if (!losses_.IsWaiting(shard)) loss_log_.StopWaiting(shard);
    }
    CarryOut(orders, workers);
    has_lost_workers = !orders.silent.empty();
  }
}

void JobCore::TakeRecovered() {
  for (const ShardId shard : losses_.Lost()) {
    if (replicas_.is_lost(shard)) continue;
    losses_.OnRecovered(shard);
    const auto rebuild = rebuilds_.find(shard);
    const bool is_rebuilt = rebuild != rebuilds_.end() && rebuild->second.is_done;
    const std::optional<StateLoss> over =
        is_rebuilt ? loss_log_.OnRebuilt(now_, rebuild->second.plan, rebuild->second.word)
                   : loss_log_.OnReturned(now_, shard);
    if (rebuild != rebuilds_.end()) rebuilds_.erase(rebuild);
    if (over) Say(ToString(*over), over->returned < over->shards.size());
  }
}

// Whoever has the holder's place is another process when it has said that it lacks the state.
void JobCore::StopWaitingForReplaced() {
  for (const ShardId shard : losses_.Waiting()) {
    const std::vector<ServerId>& holders = replicas_.table().at(shard).followers;
    const bool is_replaced = std::all_of(holders.begin(), holders.end(), [&](ServerId holder) {
      return replicas_.HasPromised(shard, holder);
    });
    if (is_replaced) losses_.StopWaiting(shard);
  }
}

std::map<WorkerId, SessionId> JobCore::WorkersOfView() const {
  std::map<WorkerId, SessionId> workers;
  for (const auto& [session, member] : members_) {
    const auto* worker = std::get_if<Worker>(&member.role);
    if (worker == nullptr) continue;
    const ViewMember* of_view = agreement_.active().Find(worker->info.worker);
    if (of_view != nullptr && of_view->incarnation == worker->info.incarnation)
      workers[worker->info.worker] = session;
  }
  return workers;
}

LossRecovery::Job JobCore::LossView(const std::map<WorkerId, SessionId>& workers) const {
  LossRecovery::Job job{.workers = {},
                        .has_server = false,
                        .has_begun = started_at_.has_value(),
                        .has_steps = statistics_.HighestVersion() > Step{},
                        .has_checkpoint = !CheckpointsOfJob().empty()};
  for (const auto& [worker, session] : workers) job.workers.insert(worker);
  job.has_server = std::any_of(
      servers_.begin(), servers_.end(), [&](const auto& server) { return IsWanted(server.first); });
  return job;
}

// Where this job has saved or began from; empty where it has no checkpoint.
std::string JobCore::CheckpointsOfJob() const {
  if (!checkpoints_) return "";
  const std::string& folder = options_.checkpoint->folder;
  const bool has_begun_there =
      options_.restore.has_value() && absl::StartsWith(options_.restore->folder, folder);
  return has_begun_there || checkpoints_->status().saved > 0 ? folder : "";
}

void JobCore::CarryOut(const LossRecovery::Orders& orders,
                       const std::map<WorkerId, SessionId>& workers) {
  if (!orders.failure.empty()) {
    Fail(absl::StrCat("a server was lost and its shards cannot be made anew: ", orders.failure));
    phase_ = JobPhase::kFailed;
    return;
  }
  for (const WorkerId worker : orders.silent) {
    const SessionId session = workers.at(worker);
    commands_.push_back(CloseSession{session});
    Lose(session, "it did not say in time what it has of the shards that were lost");
  }
  if (!orders.ask.empty()) {
    CollectCopies question{.round = orders.round, .entries = {}};
    for (const ShardId shard : orders.ask)
      question.entries.emplace_back(shard, replicas_.table().at(shard));
    Say(absl::StrCat("asking ",
                     workers.size(),
                     " workers what they have of ",
                     orders.ask.size(),
                     orders.ask.size() == 1 ? " shard that was lost" : " shards that were lost"),
        true);
    for (const auto& [worker, session] : workers) Send(session, question);
  }
  for (const ShardPlan& plan : orders.plans) Rebuild(plan, workers);
}

void JobCore::Rebuild(const ShardPlan& plan, const std::map<WorkerId, SessionId>& workers) {
  const std::optional<ReplicaSet> entry = replicas_.Rebuild(plan.shard);
  // The server has gone in this very moment: with its successor.
  if (!entry) return losses_.AskAgain(plan.shard);
  losses_.OnRebuilding(plan.shard, *entry->primary);
  rebuilds_[plan.shard] = {plan, {.shard = plan.shard, .entry = *entry}, false};
  RebuildShard order{.shard = plan.shard, .entry = *entry, .checkpoints = CheckpointsOfJob()};
  std::map<WorkerId, OfferCopies> offers;
  for (const ChunkPlan& chunk : plan.chunks) {
    order.chunks.push_back(chunk.chunk);
    if (chunk.chunk.source != RebuiltChunk::Source::kWorker) continue;
    OfferCopies& offer = offers[chunk.from];
    offer.shard = plan.shard;
    offer.entry = *entry;
    offer.chunks.push_back(chunk.chunk.chunk);
  }
  Send(servers_.at(*entry->primary), std::move(order));
  for (auto& [worker, offer] : offers) Send(workers.at(worker), std::move(offer));
}

void JobCore::On(SessionId session, const ShardCopies& message) {
  const Worker* worker = Find<Worker>(session);
  if (worker == nullptr)
    return Refuse(session, absl::FailedPreconditionError("only a worker has copies"));
  losses_.OnCopies(worker->info.worker, message);
}

void JobCore::On(SessionId session, const Rebuilt& message) {
  const Server* server = Find<Server>(session);
  if (server == nullptr)
    return Refuse(session, absl::FailedPreconditionError("only a server can make a shard anew"));
  const auto rebuild = rebuilds_.find(message.shard);
  const bool is_awaited = rebuild != rebuilds_.end() && replicas_.is_lost(message.shard) &&
                          rebuild->second.word.entry == message.entry;
  if (!is_awaited || failed_at_) return;
  const std::string who = ToString(server->info.server);
  if (!message.status.ok()) {
    Fail(absl::StrCat(
        who, " cannot make shard ", message.shard.value(), " anew: ", message.status.message()));
    phase_ = JobPhase::kFailed;
    return;
  }
  if (!message.state_problem.empty()) {
    Say(absl::StrCat(who,
                     ": shard ",
                     message.shard.value(),
                     " begins with an optimizer state of zero: ",
                     message.state_problem),
        true);
  }
  rebuild->second.word = message;
  rebuild->second.is_done = true;
  Carry(replicas_.OnRebuilt(message.shard, message.entry));
}

}  // namespace pushpull
