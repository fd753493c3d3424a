// SPDX-License-Identifier: Apache-2.0
//
// How many servers and workers the job should have, and how many samples per step; which servers
// should therefore hold the shards, and which may end. Two kinds of servers drain: those above a
// reduced desired size, and those whose process was told to end although the size stays the same
// (docs/decisions/0030-warnings-are-used.md). Both keep their shards until others have them, and
// are then released. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/coordinator/job_core_options.h"
#include "runtime/coordinator/job_statistics.h"
#include "runtime/coordinator/member_registry.h"
#include "runtime/membership/control.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Thread-compatible.
class Resizer {
 public:
  // Both are used, not owned, and outlive this object.
  Resizer(const JobCoreOptions& options, const MemberRegistry& members);

  // ---- desired size ----

  const DesiredSize& desired() const { return desired_; }
  // A server of spec.servers, or one beside a desired worker.
  bool IsDesired(ServerId server) const;
  bool IsDesired(WorkerId worker) const { return worker.value() < desired_.workers; }
  // At least one desired server is registered.
  bool HasDesiredServer() const;
  // kFailedPrecondition: the job has no such index.
  absl::Status CheckIndex(ServerId server) const;
  absl::Status CheckIndex(WorkerId worker) const;
  // kInvalidArgument: outside the manifest's limits, or no more servers than the replication.
  absl::Status Check(const JobSize& size) const;

  // `size` has passed Check. `step` is the highest version so far; `totals` as of ResizeLog.
  void ResizeServers(SteadyTime now, uint32_t servers, Step step, ResizeLog::Totals totals);
  // Returns notifications for the workers that are no longer, or once more, part of the job.
  std::vector<std::pair<WorkerId, Release>> ResizeWorkers(uint32_t workers);
  void SetGlobalBatch(uint64_t batch);
  // A size that members know from an earlier coordinator; ignored if older than the one known here.
  void Restore(const DesiredSize& reported);

  // ---- drains ----

  // The coordinator's process is about to end, too: servers keep their shards while no other could
  // take them, because this coordinator will see no replacement.
  void KeepPlaces() { keeps_places_ = true; }
  // The server's process is about to end. False: it has asked before.
  bool RequestDrain(ServerId server);
  bool IsLeaving(ServerId server) const { return leave_turns_.contains(server); }
  bool has_leaving() const { return !leave_turns_.empty(); }
  // There are servers, and the processes of all are about to end.
  bool AreAllLeaving() const;
  bool IsReleased(ServerId server) const { return released_.contains(server); }
  // Its session is over: nothing of this is remembered for the next process with its index.
  void OnServerGone(ServerId server);

  // The servers that should hold the shards, if they differ from the last answer; `is_forced`: in
  // any case.
  std::optional<std::set<ServerId>> TakeTarget(bool is_forced = false);
  bool IsTarget(ServerId server) const { return target_.contains(server); }

  // When a server that has asked to leave is released.
  enum class LeaveRule {
    kNever,    // for now: what it must hold is undecided, or the last checkpoint needs it
    kDrained,  // it holds nothing
    kAtOnce,   // the values are final and saved
  };
  // The servers to be told to stop, each once. Undesired ones are released once they are drained.
  std::vector<ServerId> TakeReleased(LeaveRule rule, absl::FunctionRef<bool(ServerId)> is_drained);

  // ---- log of resizes ----

  bool is_log_open() const { return log_.is_open(); }
  void UpdateLog(SteadyTime now, size_t shards_moving, const ResizeLog::Totals& totals);
  const std::vector<ResizeStatus>& resizes() const { return log_.resizes(); }

 private:
  std::set<ServerId> Target() const;

  const JobCoreOptions& options_;
  const MemberRegistry& members_;
  DesiredSize desired_;
  std::map<ServerId, uint64_t> leave_turns_;  // servers that asked to leave, with their order
  uint64_t last_turn_ = 0;
  std::set<ServerId> released_;
  std::set<ServerId> target_;  // the last answer of TakeTarget
  bool keeps_places_ = false;
  ResizeLog log_;
};

}  // namespace pushpull
