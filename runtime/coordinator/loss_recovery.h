// SPDX-License-Identifier: Apache-2.0
//
// Shards whose last holder is lost (protocol.md section 5, Loss): how long it is waited for, what
// each worker has of them, and where each chunk's value comes from then. Who is primary is
// replica_agreement.h's business, what is sent is job_core_losses.cc's.
//
//   waiting --1--> due --2--> asking --3--> rebuilding --4--> over
//                   ^            |              |
//                   +------------+------5-------+
//
// 1 The grace is over, or a new process has the holder's place: it will not come back.
// 2 A server is there that can take them. Every worker of the view is asked, at once: with its
//   answer it promises to take nothing any more that the old primary publishes.
// 3 All have answered. Who does not in time, or goes, is taken out of the view and not counted.
// 4 The new primary has everything; or the old one is back after all: that counts at any time.
// 5 A worker has gone whose copy is needed, or one has come to the view; the new primary has gone.
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

#include "runtime/base/deadline.h"
#include "runtime/base/ids.h"
#include "runtime/membership/control.h"

namespace pushpull {

struct LossOptions {
  Duration grace = std::chrono::seconds(30);          // for the holder to come back
  Duration answer_within = std::chrono::seconds(20);  // for a worker to say what it has
  Duration server_within = std::chrono::minutes(10);  // for a server to come where there is none
};

struct ChunkPlan {
  RebuiltChunk chunk;
  WorkerId from;  // of Source::kWorker
  Step copied;    // the version that the copy has; below chunk.version where updates are lost
};

struct ShardPlan {
  ShardId shard;
  std::vector<ChunkPlan> chunks;
};

// Thread-compatible.
class LossRecovery {
 public:
  explicit LossRecovery(LossOptions options) : options_(options) {}

  // The shard, which has `chunks`, has nobody left. With `may_return` its holder is waited for.
  void Lose(SteadyTime now, ShardId shard, std::vector<ChunkId> chunks, bool may_return);
  // It cannot come back any more.
  void StopWaiting(ShardId shard);
  // The shard has a primary.
  void OnRecovered(ShardId shard) { shards_.erase(shard); }

  void OnCopies(WorkerId worker, const ShardCopies& copies);
  // What was planned of it is under way on this server.
  void OnRebuilding(ShardId shard, ServerId server);
  // Nothing came of the plan.
  void AskAgain(ShardId shard);
  void LoseServer(ServerId server);

  bool is_under_way() const { return !shards_.empty(); }
  bool IsWaiting(ShardId shard) const;
  // Those that wait for their holder, and all.
  std::vector<ShardId> Waiting() const;
  std::vector<ShardId> Lost() const;

  // What is so at the moment.
  struct Job {
    std::set<WorkerId> workers;  // of the view, and reachable
    bool has_server = false;     // somebody can take a shard
    bool has_begun = false;      // a worker was let in: values may have been published
    bool has_steps = false;      // a step was done
    bool has_checkpoint = false;
  };
  struct Orders {
    // To be asked of all workers at once; 0: nothing.
    uint64_t round = 0;
    std::vector<ShardId> ask;
    std::set<WorkerId> silent;     // to be taken out of the view
    std::vector<ShardPlan> plans;  // OnRebuilding has to follow for each
    std::string failure;           // the job cannot go on
  };
  Orders Advance(SteadyTime now, const Job& job);

 private:
  enum class State { kWaiting, kDue, kAsking, kRebuilding };
  struct Shard {
    std::vector<ChunkId> chunks;
    State state = State::kWaiting;
    SteadyTime until;           // kWaiting
    std::set<WorkerId> needed;  // kRebuilding: whose copies are on their way
    std::optional<ServerId> server;
    std::map<WorkerId, std::map<ChunkId, ChunkCopy>> copies;
  };

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
