// SPDX-License-Identifier: Apache-2.0
#include "runtime/coordinator/loss_recovery.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status_macros.h"

namespace pushpull {

void LossRecovery::Lose(SteadyTime now,
                        ShardId shard,
                        std::vector<ChunkId> chunks,
                        bool may_return) {
  shards_[shard] = {.chunks = std::move(chunks),
                    .state = may_return ? State::kWaiting : State::kDue,
                    .until = now + options_.grace,
                    .needed = {},
                    .server = std::nullopt,
                    .copies = {}};
}

void LossRecovery::OnCopies(WorkerId worker, const ShardCopies& copies) {
  const auto it = shards_.find(copies.shard);
  const bool is_awaited = it != shards_.end() && it->second.state == State::kAsking &&
                          copies.round == round_ && asked_.contains(worker);
  if (!is_awaited) return;
  std::map<ChunkId, ChunkCopy>& of_worker = it->second.copies[worker];
  for (const ChunkCopy& copy : copies.chunks) of_worker[copy.chunk] = copy;
}

void LossRecovery::LoseServer(ServerId server) {
  for (auto& [id, shard] : shards_) {
    if (shard.state == State::kRebuilding && shard.server == server) shard.state = State::kDue;
  }
}

std::vector<ShardId> LossRecovery::Waiting() const {
  std::vector<ShardId> waiting;
  for (const auto& [id, shard] : shards_) {
    if (shard.state == State::kWaiting) waiting.push_back(id);
  }
  return waiting;
}

std::vector<ShardId> LossRecovery::Lost() const {
  std::vector<ShardId> lost;
  for (const auto& [id, shard] : shards_) lost.push_back(id);
  return lost;
}

LossRecovery::Orders LossRecovery::Advance(SteadyTime now, const Job& job) {
  Orders orders;
  const auto has_gone = [&](WorkerId worker) { return !job.workers.contains(worker); };
  std::erase_if(asked_, has_gone);
  const bool is_joined = !absl::c_includes(asked_, job.workers);
  for (auto& [id, shard] : shards_) {
    std::erase_if(shard.copies, [&](const auto& word) { return has_gone(word.first); });
    const bool lacks_copy = absl::c_any_of(shard.needed, has_gone);
    const bool is_over = shard.state == State::kWaiting && now >= shard.until;
    const bool must_ask_again = (shard.state == State::kRebuilding && lacks_copy) ||
                                (shard.state == State::kAsking && is_joined);
    if (is_over || must_ask_again) shard.state = State::kDue;
  }
  Begin(now, job, orders);

  const bool is_asking = absl::c_any_of(
      shards_, [](const auto& shard) { return shard.second.state == State::kAsking; });
  if (!is_asking) return orders;
  std::set<WorkerId> missing;
  for (const WorkerId worker : asked_) {
    if (!HasAnswered(worker)) missing.insert(worker);
  }
  if (!missing.empty()) {
    if (now >= answers_until_) orders.silent = std::move(missing);
    return orders;
  }
  for (auto& [id, shard] : shards_) {
    if (shard.state != State::kAsking) continue;
    absl::StatusOr<ShardPlan> plan = Plan(id, shard, job);
    if (!plan.ok()) {
      orders.failure = std::string(plan.status().message());
      return orders;
    }
    shard.state = State::kRebuilding;
    shard.server.reset();
    shard.needed.clear();
    for (const ChunkPlan& chunk : plan->chunks) {
      if (chunk.chunk.source == RebuiltChunk::Source::kWorker) shard.needed.insert(chunk.from);
    }
    shard.copies.clear();
    orders.plans.push_back(*std::move(plan));
  }
  return orders;
}

// Asks about everything that is due, one round at a time.
void LossRecovery::Begin(SteadyTime now, const Job& job, Orders& orders) {
  const auto is_in = [&](State state) {
    return absl::c_any_of(shards_,
                          [state](const auto& shard) { return shard.second.state == state; });
  };
  if (!is_in(State::kDue) || job.has_server) without_server_since_.reset();
  if (!is_in(State::kDue) || is_in(State::kAsking)) return;
  if (!job.has_server) {
    if (!without_server_since_) without_server_since_ = now;
    if (now - *without_server_since_ >= options_.server_within) {
      orders.failure =
          absl::StrFormat("no server has come within %g s to take over the shards that were lost",
                          ToSeconds(options_.server_within));
    }
    return;
  }
  orders.round = ++round_;
  asked_ = job.workers;
  answers_until_ = now + options_.answer_within;
  for (auto& [id, shard] : shards_) {
    if (shard.state != State::kDue) continue;
    shard.state = State::kAsking;
    shard.copies.clear();
    orders.ask.push_back(id);
  }
}

bool LossRecovery::HasAnswered(WorkerId worker) const {
  return absl::c_all_of(shards_, [&](const auto& shard) {
    return shard.second.state != State::kAsking || shard.second.copies.contains(worker);
  });
}

absl::StatusOr<ShardPlan> LossRecovery::Plan(ShardId id, const Shard& shard, const Job& job) const {
  ShardPlan plan{.shard = id, .chunks = {}};
  for (const ChunkId chunk : shard.chunks) {
    absl::StatusOr<ChunkPlan> of_chunk = PlanChunk(chunk, shard, job);
    if (!of_chunk.ok()) {
      return absl::Status(of_chunk.status().code(),
                          absl::StrCat("shard ", id.value(), ": ", of_chunk.status().message()));
    }
    plan.chunks.push_back(*of_chunk);
  }
  return plan;
}

absl::StatusOr<ChunkPlan> LossRecovery::PlanChunk(ChunkId chunk,
                                                  const Shard& shard,
                                                  const Job& job) const {
  ChunkPlan plan{.chunk = {.chunk = chunk}, .from = {}, .copied = {}};
  std::vector<std::pair<WorkerId, ChunkCopy>> newest;
  Step known;
  bool all_bring_their_own = !shard.copies.empty();
  for (const auto& [worker, copies] : shard.copies) {
    const auto word = copies.find(chunk);
    const ChunkCopy copy = word == copies.end() ? ChunkCopy{.chunk = chunk} : word->second;
    known = std::max(known, copy.known);
    all_bring_their_own = all_bring_their_own && copy.kind == ChunkCopy::Kind::kInitial;
    if (copy.kind != ChunkCopy::Kind::kComplete) continue;
    if (!newest.empty() && copy.version < newest.front().second.version) continue;
    if (!newest.empty() && copy.version > newest.front().second.version) newest.clear();
    newest.emplace_back(worker, copy);
  }
  if (!newest.empty()) {
    for (const auto& [worker, copy] : newest) {
      if (copy.checksum == newest.front().second.checksum) continue;
      return absl::DataLossError(absl::StrFormat(
          "the copies of chunk %d that %s and %s have of version %d differ: a program "
          "has written to its `out`",
          chunk.value(),
          ToString(newest.front().first),
          ToString(worker),
          copy.version.value()));
    }
    // Spreads the sending over the workers.
    const auto& [from, copy] = newest[chunk.value() % newest.size()];
    plan.chunk.source = RebuiltChunk::Source::kWorker;
    plan.chunk.version = std::max(known, copy.version);
    plan.chunk.checksum = copy.checksum;
    plan.from = from;
    plan.copied = copy.version;
    return plan;
  }
  // No remaining worker has seen a value; the first one to arrive counts, as at the start of a job.
  const bool has_no_value = !job.has_begun || (all_bring_their_own && !job.has_steps);
  if (job.has_checkpoint && !all_bring_their_own) {
    plan.chunk.source = RebuiltChunk::Source::kCheckpoint;
    plan.chunk.version = known;
    return plan;
  }
  if (has_no_value) return plan;
  return absl::DataLossError(absl::StrCat(
      "no worker has a copy of chunk ", chunk.value(), " any more, and the job has no checkpoint"));
}

}  // namespace pushpull
