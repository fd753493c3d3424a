// SPDX-License-Identifier: Apache-2.0
//
// Records each loss of shards that had no other holder, and what replaced them: for the log, the
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
  // One loss: its shards, with the number of chunks in each. `server` is the last holder, none if
  // unknown. A shard that is already part of an open loss stays in that one.
  void Begin(SteadyTime now,
             std::optional<ServerId> server,
             const std::map<ShardId, uint64_t>& shards,
             bool is_waiting);
  void StopWaiting(ShardId shard);
  // Each returns the loss if this was its last shard.
  std::optional<StateLoss> OnReturned(SteadyTime now, ShardId shard);
  std::optional<StateLoss> OnRebuilt(SteadyTime now, const ShardPlan& plan, const Rebuilt& word);

  const std::vector<StateLoss>& losses() const { return losses_; }

 private:
  StateLoss* Find(ShardId shard);
  std::optional<StateLoss> Close(SteadyTime now, ShardId shard);

  std::vector<StateLoss> losses_;
  std::vector<SteadyTime> began_at_;  // of each loss
  std::map<ShardId, size_t> open_;    // position in losses_
};

}  // namespace pushpull
