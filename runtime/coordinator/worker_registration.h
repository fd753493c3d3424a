// SPDX-License-Identifier: Apache-2.0
//
// The way of a worker from its list of tensors to the view: the list waits until servers are there
// to place the first one on, is compared with that, and the worker is proposed when every server
// has the tensors. Pure.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "runtime/base/ids.h"
#include "runtime/coordinator/command.h"
#include "runtime/coordinator/contributors.h"
#include "runtime/coordinator/member_registry.h"
#include "runtime/coordinator/outbox.h"
#include "runtime/coordinator/shard_directory.h"
#include "runtime/membership/control.h"

namespace pushpull {

// Thread-compatible.
class WorkerRegistration {
 public:
  // All are used, not owned, and outlive this object. `on_placed` is called when the first list has
  // been placed, before the next one is registered.
  WorkerRegistration(MemberRegistry& registry,
                     ShardDirectory& shards,
                     Contributors& contributors,
                     Outbox& outbox,
                     std::function<void()> on_placed);

  void Add(WorkerId worker, const RegisterTensors& request) { waiting_[worker] = request; }
  void Forget(WorkerId worker) { waiting_.erase(worker); }
  // Registers what waits; a list that does not fit ends its worker's session. The first one is
  // placed, where an error ends the job. Not before ShardDirectory::is_prepared.
  std::optional<JobFailure> RegisterWaiting();
  // Proposes the workers that are registered, unless servers lack tensors or values.
  void AdmitReady();

 private:
  MemberRegistry& registry_;
  ShardDirectory& shards_;
  Contributors& contributors_;
  Outbox& outbox_;
  const std::function<void()> on_placed_;
  std::map<WorkerId, RegisterTensors> waiting_;
};

}  // namespace pushpull
