// SPDX-License-Identifier: Apache-2.0
//
// Handles shards without a live holder: turns the decisions of loss_recovery.h into messages to the
// workers that have copies and to the servers that take over, and records each loss for the status
// (docs/decisions/0020-lost-shards-from-workers.md). Pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/consistency/view.h"
#include "runtime/coordinator/job_state.h"
#include "runtime/coordinator/loss_log.h"
#include "runtime/coordinator/loss_recovery.h"
#include "runtime/coordinator/shard_directory.h"

namespace pushpull {

// Thread-compatible. A loss that cannot be repaired fails the job.
class LossHandler {
 public:
  // Both are used, not owned, and outlive this object.
  LossHandler(JobState& job, ShardDirectory& shards)
      : job_(job),
        shards_(shards),
        recovery_({.grace = job.options.loss_grace, .answer_within = job.options.peer_timeout}) {}

  // Why a loss of shards at this point fails the job; empty: they are rebuilt.
  std::string WhyFatal(const Consistency& active) const;
  // The holders of the shards that are now lost, if any, have already been waited for.
  void OnHoldersAwaited() { has_waited_ = shards_.has_lost(); }
  void OnServerLost(ServerId server) { recovery_.LoseServer(server); }
  void OnCopies(WorkerId worker, const ShardCopies& copies) { recovery_.OnCopies(worker, copies); }
  // The result of an order sent to `server`; outdated results are ignored.
  void OnRebuilt(ServerId server, const Rebuilt& rebuilt);

  // Some shards have lost their last holder and are not rebuilt yet.
  bool is_under_way() const { return shards_.has_lost() || recovery_.is_under_way(); }
  // Continues as far as possible without another message; to be called after every event. `workers`
  // and `has_server` as in LossRecovery::Job; `checkpoint` is the folder of the job's newest one,
  // empty if there is none. Returns the workers that did not answer in time: remove them, then call
  // Advance again.
  std::set<WorkerId> Advance(const Consistency& active,
                             const std::set<WorkerId>& workers,
                             bool has_server,
                             const std::string& checkpoint);

  const std::vector<StateLoss>& losses() const { return log_.losses(); }

 private:
  // A shard that a server was ordered to rebuild, and its answer.
  struct Rebuilding {
    ShardPlan plan;
    Rebuilt answer;
    bool is_done = false;
  };

  void Begin(const std::vector<ShardId>& lost);
  void CloseRecovered();
  void StopWaitingForReplaced();
  void Ask(const LossRecovery::Orders& orders, const std::set<WorkerId>& workers);
  void Rebuild(const ShardPlan& plan, const std::string& checkpoint);

  JobState& job_;
  ShardDirectory& shards_;
  LossRecovery recovery_;
  LossLog log_;
  std::map<ShardId, Rebuilding> rebuilds_;
  bool has_waited_ = false;
};

}  // namespace pushpull
