// SPDX-License-Identifier: Apache-2.0
//
// What was lost when the last holder of shards was, and what took its place: for the log, the
// status and the report. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/ids.h"
#include "runtime/coordinator/loss_recovery.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Thread-compatible.
class LossLog {
 public:
  // One loss of shards and the number of their chunks; `server` is none where it is not known which
  // server it was. Shards of an earlier loss that are not back yet stay with that.
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
