// SPDX-License-Identifier: Apache-2.0
//
// Records each loss of shards without another holder, and what replaced them: for the log, the
// status and the report. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/coordinator/loss_recovery.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Thread-compatible.
class LossLog {
 public:
  // One loss: its shards with the number of their chunks. `server` is the last holder, none where
  // it is unknown. A shard that is part of an open loss stays with that.
  void Begin(SteadyTime now,
             std::optional<ServerId> server,
             const std::map<ShardId, uint64_t>& shards,
             bool is_waiting);
  void StopWaiting(ShardId shard);
  // Each returns the loss when this was the last shard of it.
  std::optional<StateLoss> OnReturned(SteadyTime now, ShardId shard);
  std::optional<StateLoss> OnRebuilt(SteadyTime now, const ShardPlan& plan, const Rebuilt& word);

  const std::vector<StateLoss>& losses() const { return losses_; }

 private:
  StateLoss* Find(ShardId shard);
  std::optional<StateLoss> Close(SteadyTime now, ShardId shard);

  std::vector<StateLoss> losses_;
  std::vector<SteadyTime> began_at_;  // of each
  std::map<ShardId, size_t> open_;    // position in losses_
};

}  // namespace pushpull
