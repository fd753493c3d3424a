// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/loss_handler.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"

namespace pushpull {

// A worker's copy is the value of a step, so it can replace the lost one only if the step number
// determines which updates a value contains. In Async and Bounded it does not; with backup workers
// and gated steps the decision on who counts in the last step was lost with its leading chunk.
// Before a worker has been admitted there is no value, and no step, to lose.
std::string LossHandler::WhyFatal(const Consistency& active) const {
  if (!job_.options.repairs_losses) return "its shards have no copy on another server";
  if (!job_.lifecycle.has_started()) return "";
  if (active.gated)
    return "with spec.sync.gated it is not known who counts in the step that was lost";
  if (active.admits())
    return "with backup workers it is not known who was admitted to the step that was lost";
  if (active.is_sync()) return "";
  return absl::StrFormat("in the mode %s it is not known which updates the workers' copies contain",
                         NameOf(active.mode));
}

void LossHandler::Begin(const std::vector<ShardId>& lost) {
  std::map<ShardId, std::vector<ChunkId>> chunks;
  for (const ShardId shard : lost) chunks[shard] = {};
  for (const PlacedTensor& tensor : shards_.catalog().tensors()) {
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      const auto of_shard = chunks.find(tensor.shards[i]);
      if (of_shard != chunks.end()) of_shard->second.emplace_back(tensor.first_chunk.value() + i);
    }
  }
  std::map<std::optional<ServerId>, std::map<ShardId, uint64_t>> by_server;
  for (auto& [shard, ids] : chunks) {
    const std::vector<ServerId>& holders = shards_.replicas().table().at(shard).followers;
    std::optional<ServerId> holder;
    if (!holders.empty()) holder = holders.front();
    by_server[holder][shard] = ids.size();
    recovery_.Lose(job_.now, shard, std::move(ids), !has_waited_);
  }
  for (const auto& [server, shards] : by_server) log_.Begin(job_.now, server, shards, true);
  job_.outbox.Warn(absl::StrFormat(
      "%d %s lost the last holder, the first is shard %d: waiting up to %g s for it, "
      "then rebuilding from the workers' copies",
      lost.size(),
      lost.size() == 1 ? "shard has" : "shards have",
      lost.front().value(),
      ToSeconds(job_.options.loss_grace)));
}

void LossHandler::OnRebuilt(ServerId server, const Rebuilt& rebuilt) {
  // The order may be outdated: replaced by another one, or the old holder has returned meanwhile.
  const auto rebuild = rebuilds_.find(rebuilt.shard);
  const bool is_expected = rebuild != rebuilds_.end() &&
                           shards_.replicas().is_lost(rebuilt.shard) &&
                           rebuild->second.answer.entry == rebuilt.entry;
  if (!is_expected) return;
  if (!rebuilt.status.ok()) {
    return job_.Fail({absl::StrFormat("%s cannot rebuild shard %d: %s",
                                      ToString(server),
                                      rebuilt.shard.value(),
                                      rebuilt.status.message())});
  }
  if (!rebuilt.state_problem.empty()) {
    job_.outbox.Warn(absl::StrFormat("%s: shard %d starts with an optimizer state of zero: %s",
                                     ToString(server),
                                     rebuilt.shard.value(),
                                     rebuilt.state_problem));
  }
  rebuild->second.answer = rebuilt;
  rebuild->second.is_done = true;
  shards_.Apply(shards_.replicas().OnRebuilt(rebuilt.shard, rebuilt.entry));
}

std::set<WorkerId> LossHandler::Advance(const Consistency& active,
                                        const std::set<WorkerId>& workers,
                                        bool has_server,
                                        const std::string& checkpoint) {
  if (const std::vector<ShardId> lost = shards_.TakeLost(); !lost.empty()) {
    if (!WhyFatal(active).empty()) {
      job_.Fail(
          {.text = absl::StrFormat(
               "shard %d%s no server left that holds their state",
               lost.front().value(),
               lost.size() > 1 ? absl::StrFormat(" and %d more have", lost.size() - 1) : " has"),
           .is_final = false});
      return {};
    }
    Begin(lost);
  }
  has_waited_ = false;
  CloseRecovered();
  StopWaitingForReplaced();
  if (!recovery_.is_under_way()) return {};
  const LossRecovery::Orders orders =
      recovery_.Advance(job_.now,
                        {.workers = workers,
                         .has_server = has_server,
                         .has_begun = job_.lifecycle.has_started(),
                         .has_steps = job_.statistics.HighestVersion() > Step{},
                         .has_checkpoint = !checkpoint.empty()});
  for (const ShardId shard : recovery_.Lost()) {
    if (!recovery_.IsWaiting(shard)) log_.StopWaiting(shard);
  }
  if (!orders.failure.empty()) {
    job_.Fail({"a server was lost and its shards cannot be rebuilt: " + orders.failure});
    return {};
  }
  if (!orders.ask.empty()) Ask(orders, workers);
  for (const ShardPlan& plan : orders.plans) Rebuild(plan, checkpoint);
  return orders.silent;
}

void LossHandler::CloseRecovered() {
  for (const ShardId shard : recovery_.Lost()) {
    if (shards_.replicas().is_lost(shard)) continue;
    recovery_.OnRecovered(shard);
    const auto rebuild = rebuilds_.find(shard);
    const bool is_rebuilt = rebuild != rebuilds_.end() && rebuild->second.is_done;
    const std::optional<StateLoss> closed =
        is_rebuilt ? log_.OnRebuilt(job_.now, rebuild->second.plan, rebuild->second.answer)
                   : log_.OnReturned(job_.now, shard);
    if (rebuild != rebuilds_.end()) rebuilds_.erase(rebuild);
    if (!closed) continue;
    const bool has_all_returned = closed->returned == closed->shards.size();
    job_.outbox.Add(Announce{!has_all_returned, ToString(*closed)});
  }
}

// A promise for a lost shard says that the process lacks the state. So once every listed holder has
// promised, new processes have taken their places and the old ones cannot return.
void LossHandler::StopWaitingForReplaced() {
  for (const ShardId shard : recovery_.Waiting()) {
    const std::vector<ServerId>& holders = shards_.replicas().table().at(shard).followers;
    const bool is_replaced = absl::c_all_of(
        holders, [&](ServerId holder) { return shards_.replicas().HasPromised(shard, holder); });
    if (is_replaced) recovery_.StopWaiting(shard);
  }
}

void LossHandler::Ask(const LossRecovery::Orders& orders, const std::set<WorkerId>& workers) {
  CollectCopies question{.round = orders.round, .entries = {}};
  for (const ShardId shard : orders.ask)
    question.entries.emplace_back(shard, shards_.replicas().table().at(shard));
  job_.outbox.Warn(absl::StrFormat("asking %d workers for their copies of %d lost %s",
                                   workers.size(),
                                   orders.ask.size(),
                                   orders.ask.size() == 1 ? "shard" : "shards"));
  for (const WorkerId worker : workers) job_.outbox.Send(worker, question);
}

void LossHandler::Rebuild(const ShardPlan& plan, const std::string& checkpoint) {
  const std::optional<ReplicaSet> entry = shards_.replicas().Rebuild(plan.shard);
  // The server that was to take the shard has gone since then: plan again with its successor.
  if (!entry) return recovery_.AskAgain(plan.shard);
  recovery_.OnRebuilding(plan.shard, *entry->primary);
  rebuilds_[plan.shard] = {plan, {.shard = plan.shard, .entry = *entry}, false};
  RebuildShard order{.shard = plan.shard, .entry = *entry, .checkpoint = checkpoint};
  std::map<WorkerId, OfferCopies> offers;
  for (const ChunkPlan& chunk : plan.chunks) {
    order.chunks.push_back(chunk.chunk);
    if (chunk.chunk.source != RebuiltChunk::Source::kWorker) continue;
    OfferCopies& offer = offers[chunk.from];
    offer.shard = plan.shard;
    offer.entry = *entry;
    offer.chunks.push_back(chunk.chunk.chunk);
  }
  job_.outbox.Send(*entry->primary, std::move(order));
  for (auto& [worker, offer] : offers) job_.outbox.Send(worker, std::move(offer));
}

}  // namespace pushpull
