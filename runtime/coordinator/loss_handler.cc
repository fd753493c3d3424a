// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/loss_handler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {

LossHandler::LossHandler(const JobCoreOptions& options, ReplicaAgreement& replicas, Outbox& outbox)
    : options_(options),
      replicas_(replicas),
      outbox_(outbox),
      recovery_({.grace = options.loss_grace, .answer_within = options.peer_timeout}) {}

// A worker's copy is the value of a step, so that it can replace the lost one only where steps say
// which updates a value contains. In Async and Bounded nothing says so; with backup workers and
// gated steps the decision who counts in the last step was lost with its leading chunk.
std::string LossHandler::WhyFatal(const Consistency& active) const {
  if (!options_.repairs_losses) return "its shards have no copy on another server";
  if (active.gated)
    return "with spec.sync.gated it is not known who counts in the step that was lost";
  if (active.admits())
    return "with backup workers it is not known who was admitted to the step that was lost";
  if (active.is_sync()) return "";
  return absl::StrCat("in the mode ",
                      NameOf(active.mode),
                      " it is not known which updates the workers' copies contain");
}

void LossHandler::Begin(SteadyTime now,
                        const std::vector<ShardId>& lost,
                        std::span<const PlacedTensor> tensors) {
  std::map<ShardId, std::vector<ChunkId>> chunks;
  for (const ShardId shard : lost) chunks[shard] = {};
  for (const PlacedTensor& tensor : tensors) {
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
    recovery_.Lose(now, shard, std::move(ids), true);
  }
  for (const auto& [server, shards] : by_server) log_.Begin(now, server, shards, true);
  outbox_.Warn(absl::StrCat(lost.size(),
                            lost.size() == 1 ? " shard has" : " shards have",
                            " lost the last holder, the first is shard ",
                            lost.front().value(),
                            ": waiting up to ",
                            ToSeconds(options_.loss_grace),
                            " s for it, then rebuilding from the workers' copies"));
}

void LossHandler::StopWaiting() {
  for (const ShardId shard : recovery_.Waiting()) recovery_.StopWaiting(shard);
}

absl::StatusOr<ReplicaChange> LossHandler::OnRebuilt(ServerId server, const Rebuilt& rebuilt) {
  // The order may be outdated: replaced by another one, or the old holder came back meanwhile.
  const auto rebuild = rebuilds_.find(rebuilt.shard);
  const bool is_expected = rebuild != rebuilds_.end() && replicas_.is_lost(rebuilt.shard) &&
                           rebuild->second.answer.entry == rebuilt.entry;
  if (!is_expected) return ReplicaChange{};
  if (!rebuilt.status.ok()) {
    return absl::Status(rebuilt.status.code(),
                        absl::StrCat(ToString(server),
                                     " cannot make shard ",
                                     rebuilt.shard.value(),
                                     " anew: ",
                                     rebuilt.status.message()));
  }
  if (!rebuilt.state_problem.empty()) {
    outbox_.Warn(absl::StrCat(ToString(server),
                              ": shard ",
                              rebuilt.shard.value(),
                              " starts with an optimizer state of zero: ",
                              rebuilt.state_problem));
  }
  rebuild->second.answer = rebuilt;
  rebuild->second.is_done = true;
  return replicas_.OnRebuilt(rebuilt.shard, rebuilt.entry);
}

LossHandler::Result LossHandler::Advance(SteadyTime now,
                                         const LossRecovery::Job& job,
                                         const std::string& checkpoints) {
  CloseRecovered(now);
  StopWaitingForReplaced();
  if (!is_under_way()) return {};
  const LossRecovery::Orders orders = recovery_.Advance(now, job);
  for (const ShardId shard : recovery_.Lost()) {
    if (!recovery_.IsWaiting(shard)) log_.StopWaiting(shard);
  }
  if (!orders.failure.empty()) {
    return {.failure = JobFailure{absl::StrCat(
                "a server was lost and its shards cannot be made anew: ", orders.failure)},
            .silent = {}};
  }
  if (!orders.ask.empty()) Ask(orders, job.workers);
  for (const ShardPlan& plan : orders.plans) Rebuild(plan, checkpoints);
  return {.failure = std::nullopt, .silent = orders.silent};
}

void LossHandler::CloseRecovered(SteadyTime now) {
  for (const ShardId shard : recovery_.Lost()) {
    if (replicas_.is_lost(shard)) continue;
    recovery_.OnRecovered(shard);
    const auto rebuild = rebuilds_.find(shard);
    const bool is_rebuilt = rebuild != rebuilds_.end() && rebuild->second.is_done;
    const std::optional<StateLoss> closed =
        is_rebuilt ? log_.OnRebuilt(now, rebuild->second.plan, rebuild->second.answer)
                   : log_.OnReturned(now, shard);
    if (rebuild != rebuilds_.end()) rebuilds_.erase(rebuild);
    if (!closed) continue;
    const bool has_all_returned = closed->returned == closed->shards.size();
    outbox_.Add(Announce{!has_all_returned, ToString(*closed)});
  }
}

// A promise for a lost shard says that the process lacks the state. So once every listed holder has
// promised, new processes have their places and the old ones cannot come back.
void LossHandler::StopWaitingForReplaced() {
  for (const ShardId shard : recovery_.Waiting()) {
    const std::vector<ServerId>& holders = replicas_.table().at(shard).followers;
    const bool is_replaced = std::all_of(holders.begin(), holders.end(), [&](ServerId holder) {
      return replicas_.HasPromised(shard, holder);
    });
    if (is_replaced) recovery_.StopWaiting(shard);
  }
}

void LossHandler::Ask(const LossRecovery::Orders& orders, const std::set<WorkerId>& workers) {
  CollectCopies question{.round = orders.round, .entries = {}};
  for (const ShardId shard : orders.ask)
    question.entries.emplace_back(shard, replicas_.table().at(shard));
  outbox_.Warn(absl::StrCat("asking ",
                            workers.size(),
                            " workers for their copies of ",
                            orders.ask.size(),
                            orders.ask.size() == 1 ? " lost shard" : " lost shards"));
  for (const WorkerId worker : workers) outbox_.Send(worker, question);
}

void LossHandler::Rebuild(const ShardPlan& plan, const std::string& checkpoints) {
  const std::optional<ReplicaSet> entry = replicas_.Rebuild(plan.shard);
  // The server that was to take the shard has gone since: plan again with its successor.
  if (!entry) return recovery_.AskAgain(plan.shard);
  recovery_.OnRebuilding(plan.shard, *entry->primary);
  rebuilds_[plan.shard] = {plan, {.shard = plan.shard, .entry = *entry}, false};
  RebuildShard order{.shard = plan.shard, .entry = *entry, .checkpoints = checkpoints};
  std::map<WorkerId, OfferCopies> offers;
  for (const ChunkPlan& chunk : plan.chunks) {
    order.chunks.push_back(chunk.chunk);
    if (chunk.chunk.source != RebuiltChunk::Source::kWorker) continue;
    OfferCopies& offer = offers[chunk.from];
    offer.shard = plan.shard;
    offer.entry = *entry;
    offer.chunks.push_back(chunk.chunk.chunk);
  }
  outbox_.Send(*entry->primary, std::move(order));
  for (auto& [worker, offer] : offers) outbox_.Send(worker, std::move(offer));
}

}  // namespace pushpull
