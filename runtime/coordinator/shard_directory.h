// SPDX-License-Identifier: Apache-2.0
//
// Where the parameters are: the tensors, the shards that their chunks are in, and the servers that
// hold each shard, from the first placement or a restored checkpoint on. Who holds what later is
// decided by replica_agreement.h, what replaces a shard without a live holder by loss_handler.h.
// Pure.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/coordinator/codec_rules.h"
#include "runtime/coordinator/collection.h"
#include "runtime/coordinator/command.h"
#include "runtime/coordinator/job_core_options.h"
#include "runtime/coordinator/loss_handler.h"
#include "runtime/coordinator/member_registry.h"
#include "runtime/coordinator/outbox.h"
#include "runtime/coordinator/replica_agreement.h"
#include "runtime/coordinator/restorer.h"
#include "runtime/coordinator/tensor_catalog.h"

namespace pushpull {

// Thread-compatible. Messages of servers are those of the same name in membership/control.h;
// outdated ones are ignored.
class ShardDirectory {
 public:
  // All are used, not owned, and outlive this object.
  ShardDirectory(const JobCoreOptions& options, const MemberRegistry& members, Outbox& outbox);

  const TensorCatalog& catalog() const { return catalog_; }
  const ReplicaAgreement& replicas() const { return replicas_; }
  const LossHandler& losses() const { return losses_; }
  // The first entries wait for servers that read the checkpoint.
  bool is_restoring() const { return restorer_.is_under_way(); }
  // The servers were there that shards are placed on: tensors can be registered.
  bool is_prepared() const { return is_prepared_; }

  // ---- start ----

  // Assigns every shard to one of the registered servers.
  std::optional<JobFailure> Prepare();
  // As TensorCatalog::Register; kInvalidArgument also where a codec does not fit the job.
  absl::Status Register(WorkerId worker,
                        std::span<const TensorSpec> tensors,
                        const CodecRules& rules);
  // Installs the registered tensors and gives out the first entries, at once or when the checkpoint
  // that the job starts from is read.
  std::optional<JobFailure> Place();
  std::optional<JobFailure> OnRestored(ServerId server, const Restored& message);

  // Instead, under a coordinator that replaces an earlier one: the tensors as they were placed,
  // then, where the job had begun, the registered servers and the newest entries.
  std::optional<JobFailure> RecoverTensors(const CollectedJob& job);
  void RecoverServers(const std::set<ServerId>& target);
  void RecoverEntries(const std::map<ShardId, ReplicaSet>& newest);

  // ---- later ----

  // The tensors and entries, for a member that has just registered.
  void SendTableTo(SessionId session, bool is_server);
  void AddServer(const RegisterServer& server);
  // What follows from the loss of a server: to be given to Apply, unless it ends the job.
  struct Removal {
    ReplicaChange change;
    std::optional<std::string> fatal;  // a detail for the failure's text, which may be empty
  };
  Removal RemoveServer(ServerId server, const Consistency& active);
  void Apply(const ReplicaChange& change, bool are_first = false);
  void SetTarget(const std::set<ServerId>& servers) { Apply(replicas_.SetTarget(servers)); }

  void OnPromises(ServerId server, const Promises& message);
  void OnCaughtUp(const CaughtUp& message) { Apply(replicas_.OnCaughtUp(message)); }
  void OnHandedOver(const HandedOver& message) { Apply(replicas_.OnHandedOver(message)); }
  void OnCopies(WorkerId worker, const ShardCopies& copies) { losses_.OnCopies(worker, copies); }
  std::optional<JobFailure> OnRebuilt(ServerId server, const Rebuilt& message);

  // Shards have lost their last holder and are not rebuilt yet.
  bool has_losses() const { return !lost_.empty() || losses_.is_under_way(); }
  // As LossHandler::Advance; to be called after every event.
  LossHandler::Result AdvanceLosses(SteadyTime now,
                                    const Consistency& active,
                                    const LossRecovery::Job& job,
                                    const std::string& checkpoints);

 private:
  const JobCoreOptions& options_;
  const MemberRegistry& members_;
  Outbox& outbox_;
  bool is_prepared_ = false;
  std::vector<ServerId> primaries_;  // where chunks are placed at first, by shard
  TensorCatalog catalog_;
  ReplicaAgreement replicas_;
  LossHandler losses_;
  Restorer restorer_;
  std::vector<ShardId> lost_;  // not known to losses_ yet
  bool has_waited_ = false;    // for the holders of lost_, while the job was recovered
};

}  // namespace pushpull
