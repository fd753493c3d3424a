// SPDX-License-Identifier: Apache-2.0
//
// Collects the reports of servers and workers to a new coordinator and derives the state of the job
// (docs/protocol.md section 6): the newest entry of each shard, the view in force, the desired
// size. recovery.h decides how long to wait for missing reports. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/consistency/view.h"
#include "runtime/membership/control.h"
#include "runtime/shard/shard_map.h"
#include "runtime/store/placed_tensor.h"

namespace pushpull {

// The job as earlier coordinators left it: all of this was decided by them.
struct CollectedJob {
  std::vector<PlacedTensor> tensors;  // empty: none were placed yet
  // False: no server can hold a value yet, so the shards may be placed again.
  bool has_begun = false;
  // Workers are, or were, in a view in force. False: the first view waits for all of them, even if
  // values were already restored from a checkpoint.
  bool has_contributors = false;
  std::map<ShardId, ReplicaSet> entries;  // of the highest epoch reported
  View view;                              // in force, or accepted by all
  uint64_t last_view_number = 0;          // highest reported
  std::set<WorkerId> established;         // members that have reached their first step
  DesiredSize desired;
};

// Thread-compatible.
class Collection {
 public:
  // A member's report; the latest one counts.
  void Add(ServerId server, ServerReport report) { servers_[server] = std::move(report); }
  void Add(const RegisterWorker& worker, WorkerReport report) {
    workers_[worker.worker] = {worker.incarnation, worker.is_member, std::move(report)};
  }
  // The member has departed, or another process has taken its place.
  void Remove(ServerId server) { servers_.erase(server); }
  void Remove(WorkerId worker) { workers_.erase(worker); }

  bool HasSpoken(ServerId server) const { return servers_.contains(server); }
  // Some member knows of a job under way.
  bool has_state() const;
  // Members listed in the newest entries or the view that have not reported.
  struct Missing {
    std::set<ServerId> servers;
    std::vector<ViewMember> workers;
  };
  Missing FindMissing() const;
  // Shards with values for which no full holder has reported: the missing ones may be the last.
  std::vector<ShardId> Unheld() const;

  CollectedJob Decide() const;

 private:
  struct WorkerWord {
    Incarnation incarnation;
    bool is_member = false;
    WorkerReport report;
  };

  std::map<ShardId, ReplicaSet> NewestEntries() const;
  // The newest active view, or the proposed one that was or may have been activated.
  View NewestView() const;
  bool IsAcceptedByAll(const View& proposed) const;
  const std::vector<PlacedTensor>* Tensors() const;
  bool HasBegun(const View& view) const;
  bool HasContributors(const View& view) const;

  std::map<ServerId, ServerReport> servers_;
  std::map<WorkerId, WorkerWord> workers_;
};

}  // namespace pushpull
