// SPDX-License-Identifier: Apache-2.0
//
// The checkpoint that the job starts from: whether it fits, which server reads which shards, and
// when all servers have read theirs. The first entries wait for that, because they state that no
// member lacks anything. Pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "absl/status/status.h"

#include "pushpull/tensor_spec.h"

#include "runtime/base/ids.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/consistency/view.h"
#include "runtime/coordinator/replica_agreement.h"
#include "runtime/membership/control.h"

namespace pushpull {

// The checkpoint manifest's section with Consistency::steps_skipped.
SystemSection StepsSkippedSection(const Consistency& consistency);
// `at_start`, with the step numbers of the checkpoint.
Consistency RestoredConsistency(Consistency at_start, const LoadedCheckpoint& checkpoint);

// Thread-compatible.
class Restorer {
 public:
  // `checkpoint` is used, not owned, and outlives this object. Without a checkpoint only
  // is_under_way may be called.
  // `values_only`: the job begins anew, with the values of the checkpoint's tensors.
  explicit Restorer(const std::optional<LoadedCheckpoint>& checkpoint, bool values_only = false)
      : checkpoint_(checkpoint), values_only_(values_only) {}

  // kInvalidArgument: it is a checkpoint of another model. Nothing has changed.
  absl::Status Check(std::span<const TensorSpec> tensors) const;
  // For the log: what is restored into these tensors, for which Check is OK.
  std::string Describe(std::span<const TensorSpec> tensors) const;

  // The orders for `servers`, which are valid until Finish, which returns `first`. `is_sync`: the
  // job starts in mode Sync, in which all chunks need the same version.
  const std::map<ServerId, Restore>& Begin(ReplicaChange first,
                                           const std::set<ServerId>& servers,
                                           bool is_sync);
  // The first entries are not in force yet.
  bool is_under_way() const { return first_.has_value(); }
  // The server's order; null: it has nothing to read.
  const Restore* Find(ServerId server) const;
  void OnRestored(ServerId server) { restored_.insert(server); }
  // What it has read is lost: the next process with its index gets the same order.
  void OnLost(ServerId server) { restored_.erase(server); }
  // The first entries, as soon as all servers have carried out their orders.
  std::optional<ReplicaChange> Finish();

 private:
  const std::optional<LoadedCheckpoint>& checkpoint_;
  const bool values_only_;
  std::optional<ReplicaChange> first_;
  std::map<ServerId, Restore> orders_;
  std::set<ServerId> restored_;
};

}  // namespace pushpull
