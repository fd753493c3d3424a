// SPDX-License-Identifier: Apache-2.0
//
// What servers and workers tell a new coordinator of the job that an earlier one kept, and what
// follows from it (protocol.md section 6): which entry of each shard is the newest, which view is
// in force, what is wanted. Whose word is missing is waited for, within limits that are the
// caller's. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/consistency/view.h"
#include "runtime/membership/control.h"
#include "runtime/shard/shard_map.h"
#include "runtime/store/tensor_spec.h"

namespace pushpull {

// The job as it was left. Everything in it was decided by earlier coordinators.
struct CollectedJob {
  std::vector<PlacedTensor> tensors;  // empty: none were placed yet
  // False: nobody can hold a value yet, so that the shards may be placed anew.
  bool has_begun = false;
  std::map<ShardId, ReplicaSet> entries;  // of the highest epoch that anyone reported
  View view;                              // in force, or accepted by all
  uint64_t last_view_number = 0;          // highest that anyone has seen
  std::set<WorkerId> established;         // members that have reached their first step
  WantedSize wanted;
};

// Thread-compatible.
class Collection {
 public:
  // A member's word; the last one counts.
  void Add(ServerId server, ServerReport report);
  void Add(const RegisterWorker& worker, WorkerReport report);
  // It is gone, or another process has taken its place.
  void Remove(ServerId server) { servers_.erase(server); }
  void Remove(WorkerId worker) { workers_.erase(worker); }

  bool HasSpoken(ServerId server) const { return servers_.contains(server); }
  // Somebody knows of a job that was under way.
  bool has_state() const;
  // Everybody whom the newest entries and the view name has spoken.
  bool IsComplete() const;
  // Shards with values of which nobody has spoken who holds them: the missing may be the last.
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

  std::map<ServerId, ServerReport> servers_;
  std::map<WorkerId, WorkerWord> workers_;
};

}  // namespace pushpull
