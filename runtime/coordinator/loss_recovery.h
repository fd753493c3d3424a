// SPDX-License-Identifier: Apache-2.0
//
// Shards whose last holder is lost (docs/protocol.md section 5, Loss): how long to wait for it,
// which copies each worker has, and where each chunk's value then comes from. replica_agreement.h
// chooses the primary, loss_handler.h sends the messages.
//
//   waiting --1--> due --2--> asking --3--> rebuilding --4--> over
//                   ^            |              |
//                   +------------+------5-------+
//
// 1 The grace period is over, or a new process has replaced the holder: its state will not return.
// 2 A server that can take the shards is present. All workers of the view are asked at once: by
//   answering, a worker promises to accept nothing more that the old primary publishes.
// 3 All have answered. A worker that does not answer in time, or leaves, is removed from the view
//   and does not count.
// 4 The new primary has everything, or the old holder has returned after all, which is accepted at
//   any time.
// 5 A worker whose copy is needed is gone, or a worker has joined the view, or the new primary is
//   gone.
//
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/membership/control.h"

namespace pushpull {

struct LossOptions {
  Duration grace = std::chrono::seconds(30);          // for the holder to return
  Duration answer_within = std::chrono::seconds(20);  // for a worker to report its copies
  Duration server_within = std::chrono::minutes(10);  // for a server to register if there is none
};

struct ChunkPlan {
  RebuiltChunk chunk;
  WorkerId from;  // for Source::kWorker
  Step copied;    // the version that the copy has; below chunk.version if updates are lost
};

struct ShardPlan {
  ShardId shard;
  std::vector<ChunkPlan> chunks;
};

// Thread-compatible.
class LossRecovery {
 public:
  explicit LossRecovery(LossOptions options) : options_(options) {}

  // The shard, which has `chunks`, has no holder left. With `may_return`, waits for the last one.
  void Lose(SteadyTime now, ShardId shard, std::vector<ChunkId> chunks, bool may_return);
  // The holder cannot return any more.
  void StopWaiting(ShardId shard) { Change(shard, State::kWaiting, State::kDue); }
  // The shard has a primary.
  void OnRecovered(ShardId shard) { shards_.erase(shard); }

  void OnCopies(WorkerId worker, const ShardCopies& copies);
  // The server was ordered to carry out the plan.
  void OnRebuilding(ShardId shard, ServerId server) {
    if (IsIn(shard, State::kRebuilding)) shards_.at(shard).server = server;
  }
  // The plan could not be carried out.
  void AskAgain(ShardId shard) { Change(shard, State::kRebuilding, State::kDue); }
  void LoseServer(ServerId server);

  bool is_under_way() const { return !shards_.empty(); }
  bool IsWaiting(ShardId shard) const { return IsIn(shard, State::kWaiting); }
  // The shards that wait for their holder; all lost shards.
  std::vector<ShardId> Waiting() const;
  std::vector<ShardId> Lost() const;

  // The caller's current state.
  struct Job {
    std::set<WorkerId> workers;  // of the view, and reachable
    bool has_server = false;     // some server can take a shard
    bool has_begun = false;      // a worker has been admitted: values may have been published
    bool has_steps = false;      // a step has been completed
    bool has_checkpoint = false;
  };
  struct Orders {
    // The question for all workers at once; 0: none.
    uint64_t round = 0;
    std::vector<ShardId> ask;
    std::set<WorkerId> silent;     // to be removed from the view
    std::vector<ShardPlan> plans;  // OnRebuilding must follow for each
    std::string failure;           // the job cannot continue
  };
  Orders Advance(SteadyTime now, const Job& job);

 private:
  enum class State { kWaiting, kDue, kAsking, kRebuilding };
  struct Shard {
    std::vector<ChunkId> chunks;
    State state = State::kWaiting;
    SteadyTime until;           // kWaiting
    std::set<WorkerId> needed;  // kRebuilding: workers whose copies are on the way
    std::optional<ServerId> server;
    std::map<WorkerId, std::map<ChunkId, ChunkCopy>> copies;
  };

  bool IsIn(ShardId shard, State state) const {
    const auto it = shards_.find(shard);
    return it != shards_.end() && it->second.state == state;
  }
  void Change(ShardId shard, State from, State to) {
    if (IsIn(shard, from)) shards_.at(shard).state = to;
  }
  void Begin(SteadyTime now, const Job& job, Orders& orders);
  bool HasAnswered(WorkerId worker) const;
  absl::StatusOr<ShardPlan> Plan(ShardId id, const Shard& shard, const Job& job) const;
  absl::StatusOr<ChunkPlan> PlanChunk(ChunkId chunk, const Shard& shard, const Job& job) const;

  const LossOptions options_;
  std::map<ShardId, Shard> shards_;
  uint64_t round_ = 0;
  std::set<WorkerId> asked_;
  SteadyTime answers_until_;
  std::optional<SteadyTime> without_server_since_;
};

}  // namespace pushpull
