// SPDX-License-Identifier: Apache-2.0
//
// Where the parameters are: the tensors, the shards of their chunks, and the servers that hold each
// shard, from the first placement or a restored checkpoint on. Later changes of holders are decided
// by replica_agreement.h, the replacement of shards without a live holder by loss_handler.h. Pure.
#pragma once

#include <set>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/coordinator/collection.h"
#include "runtime/coordinator/job_state.h"
#include "runtime/coordinator/replica_agreement.h"
#include "runtime/coordinator/restorer.h"
#include "runtime/coordinator/tensor_catalog.h"

namespace pushpull {

// Thread-compatible. Server messages are those of the same name in membership/control.h; outdated
// ones are ignored. An operation that cannot be carried out fails the job.
class ShardDirectory {
 public:
  // `job` is used, not owned, and outlives this object.
  explicit ShardDirectory(JobState& job);

  const TensorCatalog& catalog() const { return catalog_; }
  const ReplicaAgreement& replicas() const { return replicas_; }
  ReplicaAgreement& replicas() { return replicas_; }
  // The first entries wait for servers to read the checkpoint.
  bool is_restoring() const { return restorer_.is_under_way(); }
  // The servers on which shards are placed are present: tensors can be registered.
  bool is_prepared() const { return is_prepared_; }
  // Tensors have been placed: from now on servers may hold values.
  bool is_placed() const { return !replicas_.table().empty(); }
  // Every server has the tensors and, if the job starts from a checkpoint, their values.
  bool is_installed() const {
    const uint64_t version = catalog_.version();
    return version > 0 && job_.members.AllServersHave(version) && !is_restoring();
  }

  // ---- start ----

  // Assigns every shard to one of the registered servers. May be repeated as long as nothing is
  // placed.
  void Prepare();
  // Handles the loss of a server. True: no state was lost, because the first entries are not in
  // force yet. If nothing was placed, call Prepare next; what the server has read of a checkpoint
  // is read again by the next process with its index.
  bool LoseAtStart(ServerId server);
  // As TensorCatalog::Register.
  absl::Status Register(WorkerId worker, std::span<const TensorSpec> tensors) {
    return catalog_.Register(worker, tensors);
  }
  // Installs the registered tensors and issues the first entries, at once or when the checkpoint
  // that the job starts from has been read.
  void Place();
  void OnRestored(ServerId server, const Restored& message);

  // The equivalent for a coordinator that replaces an earlier one: the tensors as they were placed,
  // then, if the job had begun, the registered servers and the newest entries.
  void RecoverTensors(const CollectedJob& job);
  void RecoverServers(const std::set<ServerId>& target);
  void RecoverEntries(const std::map<ShardId, ReplicaSet>& newest);

  // ---- later ----

  // Sends tensors and entries to a member that has just registered.
  void SendTableTo(SessionId session, bool is_server);
  // The server may get shards; while a checkpoint is being read, only after that.
  void AddServer(const RegisterServer& server);
  void Apply(const ReplicaChange& change, bool are_first = false);
  void SetTarget(const std::set<ServerId>& servers) { Apply(replicas_.SetTarget(servers)); }
  void OnPromises(ServerId server, const Promises& message);
  void OnCaughtUp(const CaughtUp& message) { Apply(replicas_.OnCaughtUp(message)); }
  void OnHandedOver(const HandedOver& message) { Apply(replicas_.OnHandedOver(message)); }

  // Some shards have lost their last holder since the last TakeLost.
  bool has_lost() const { return !lost_.empty(); }
  std::vector<ShardId> TakeLost() { return std::exchange(lost_, {}); }

 private:
  // False: every worker has everything, and chunks are in shards that no server holds.
  bool has_servers() const { return !job_.options.consistency.is_ring(); }

  JobState& job_;
  bool is_prepared_ = false;
  std::vector<ServerId> primaries_;  // where chunks are first placed, by shard
  TensorCatalog catalog_;
  ReplicaAgreement replicas_;
  Restorer restorer_;
  std::vector<ShardId> lost_;
};

}  // namespace pushpull
