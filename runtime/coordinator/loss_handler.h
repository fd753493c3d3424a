// SPDX-License-Identifier: Apache-2.0
//
// Shards without a live holder: turns the decisions of loss_recovery.h into messages to the
// workers that have copies and to the servers that take over, and records each loss for the status
// (docs/decisions/0020-lost-shards-from-workers.md). Pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/consistency/view.h"
#include "runtime/coordinator/command.h"
#include "runtime/coordinator/job_core_options.h"
#include "runtime/coordinator/loss_log.h"
#include "runtime/coordinator/loss_recovery.h"
#include "runtime/coordinator/outbox.h"
#include "runtime/coordinator/replica_agreement.h"
#include "runtime/membership/control.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Thread-compatible.
class LossHandler {
 public:
  // All are used, not owned, and outlive this object. `replicas` says which shards are lost.
  LossHandler(const JobCoreOptions& options, ReplicaAgreement& replicas, Outbox& outbox);

  // Why shards that are lost now end the job; empty: they are rebuilt.
  std::string WhyFatal(const Consistency& active) const;

  // These shards of `tensors` have lost their last holder.
  void Begin(SteadyTime now,
             const std::vector<ShardId>& lost,
             std::span<const PlacedTensor> tensors);
  // The holders have been waited for already.
  void StopWaiting();
  void OnServerLost(ServerId server) { recovery_.LoseServer(server); }
  void OnCopies(WorkerId worker, const ShardCopies& copies) { recovery_.OnCopies(worker, copies); }
  // The result of an order that was sent to `server`; outdated ones are ignored. An error ends the
  // job.
  absl::StatusOr<ReplicaChange> OnRebuilt(ServerId server, const Rebuilt& rebuilt);

  bool is_under_way() const { return recovery_.is_under_way(); }
  struct Result {
    std::optional<JobFailure> failure;
    std::set<WorkerId> silent;  // did not answer in time: to be removed, then Advance again
  };
  // Goes as far as it can without another message; to be called after every event. `checkpoints` is
  // the folder of the job's checkpoints, empty where there are none.
  Result Advance(SteadyTime now, const LossRecovery::Job& job, const std::string& checkpoints);

  const std::vector<StateLoss>& losses() const { return log_.losses(); }

 private:
  // A shard that a server was ordered to rebuild, and its answer.
  struct Rebuilding {
    ShardPlan plan;
    Rebuilt answer;
    bool is_done = false;
  };

  void CloseRecovered(SteadyTime now);
  void StopWaitingForReplaced();
  void Ask(const LossRecovery::Orders& orders, const std::set<WorkerId>& workers);
  void Rebuild(const ShardPlan& plan, const std::string& checkpoints);

  const JobCoreOptions& options_;
  ReplicaAgreement& replicas_;
  Outbox& outbox_;
  LossRecovery recovery_;
  LossLog log_;
  std::map<ShardId, Rebuilding> rebuilds_;
};

}  // namespace pushpull
