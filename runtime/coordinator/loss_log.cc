// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/loss_log.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"

namespace pushpull {
namespace {

void AddTo(std::vector<ServerId>& servers, std::optional<ServerId> server) {
  if (server && absl::c_find(servers, *server) == servers.end()) servers.push_back(*server);
}

}  // namespace

void LossLog::Begin(SteadyTime now,
                    std::optional<ServerId> server,
                    const std::map<ShardId, uint64_t>& shards,
                    bool is_waiting) {
  StateLoss loss{.servers = {}, .shards = {}, .is_waiting = is_waiting};
  if (server) loss.servers.push_back(*server);
  for (const auto& [shard, chunks] : shards) {
    if (StateLoss* earlier = Find(shard)) {
      AddTo(earlier->servers, server);
      continue;
    }
    loss.shards.push_back(shard);
    loss.chunks += chunks;
  }
  // The first losses are enough for a diagnosis.
  if (loss.shards.empty() || losses_.size() == JobStatus::kStateLossesMax) return;
  for (const ShardId shard : loss.shards) open_[shard] = losses_.size();
  losses_.push_back(std::move(loss));
  began_at_.push_back(now);
}

void LossLog::StopWaiting(ShardId shard) {
  if (StateLoss* loss = Find(shard)) loss->is_waiting = false;
}

std::optional<StateLoss> LossLog::OnReturned(SteadyTime now, ShardId shard) {
  StateLoss* loss = Find(shard);
  if (loss == nullptr) return std::nullopt;
  ++loss->returned;
  return Close(now, shard);
}

std::optional<StateLoss> LossLog::OnRebuilt(SteadyTime now,
                                            const ShardPlan& plan,
                                            const Rebuilt& word) {
  StateLoss* loss = Find(plan.shard);
  if (loss == nullptr) return std::nullopt;
  for (const ChunkPlan& chunk : plan.chunks) {
    if (chunk.chunk.source == RebuiltChunk::Source::kNew) {
      ++loss->reinitialized;
      continue;
    }
    const bool is_first = loss->from_workers + loss->from_checkpoint == 0;
    Step version = chunk.chunk.version;
    if (chunk.chunk.source == RebuiltChunk::Source::kCheckpoint) {
      ++loss->from_checkpoint;
      version = std::max(version, word.state_step.value_or(Step{}));
      if (word.state_step && version > *word.state_step) ++loss->outdated;
    } else {
      ++loss->from_workers;
      if (version > chunk.copied) ++loss->outdated;
    }
    loss->lowest_version = is_first ? version : std::min(loss->lowest_version, version);
    loss->highest_version = std::max(loss->highest_version, version);
  }
  if (word.has_optimizer_state) {
    const Step step = word.state_step.value_or(Step{});
    const Step so_far = loss->state_step.value_or(Step{});
    const Step lowest = loss->has_optimizer_state ? std::min(so_far, step) : step;
    loss->state_step = lowest > Step{} ? std::optional<Step>(lowest) : std::nullopt;
    loss->has_optimizer_state = true;
  }
  return Close(now, plan.shard);
}

StateLoss* LossLog::Find(ShardId shard) {
  const auto it = open_.find(shard);
  return it == open_.end() ? nullptr : &losses_[it->second];
}

// A loss is over when none of its shards is open.
std::optional<StateLoss> LossLog::Close(SteadyTime now, ShardId shard) {
  const auto it = open_.find(shard);
  const size_t index = it->second;
  open_.erase(it);
  const bool is_open =
      absl::c_any_of(open_, [&](const auto& other) { return other.second == index; });
  if (is_open) return std::nullopt;
  StateLoss& loss = losses_[index];
  loss.is_waiting = false;
  loss.is_repaired = true;
  loss.seconds = ToSeconds(now - began_at_[index]);
  return loss;
}

}  // namespace pushpull
