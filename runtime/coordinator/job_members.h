// SPDX-License-Identifier: Apache-2.0
//
// The members of a job as they register, leave and die, and what follows from that for the parts
// that depend on them:
//
//   member_registry.h   sessions, roles           resizer.h          desired size, drains
//   contributors.h      views, modes              shard_directory.h  replica sets, losses
//   recovery.h          a new coordinator's start
//
// Each of them decides on its own state only; the order in which an event reaches them is decided
// here. Pure.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/coordinator/contributors.h"
#include "runtime/coordinator/job_core_options.h"
#include "runtime/coordinator/job_lifecycle.h"
#include "runtime/coordinator/job_statistics.h"
#include "runtime/coordinator/member_registry.h"
#include "runtime/coordinator/outbox.h"
#include "runtime/coordinator/recovery.h"
#include "runtime/coordinator/resizer.h"
#include "runtime/coordinator/shard_directory.h"
#include "runtime/coordinator/stall_watch.h"
#include "runtime/coordinator/worker_registration.h"
#include "runtime/coordinator/worker_roster.h"
#include "runtime/membership/control.h"

namespace pushpull {

// Thread-compatible. Failures of the job go to its lifecycle.
class JobMembers {
 public:
  // All are used, not owned, and outlive this object.
  JobMembers(const JobCoreOptions& options,
             MemberRegistry& registry,
             JobLifecycle& lifecycle,
             JobStatistics& statistics,
             StallWatch& stalls,
             Outbox& outbox);

  const ShardDirectory& shards() const { return shards_; }
  const Contributors& contributors() const { return contributors_; }
  const Resizer& resizer() const { return resizer_; }
  const WorkerRoster& roster() const { return roster_; }
  // The highest step that workers have announced to leave before.
  Step end_step() const { return end_step_; }
  bool is_recovering() const { return recovery_.is_under_way(); }

  // A message that concerns members, shards or views. One from a sender that may not send it ends
  // the session.
  template <typename Message>
  void Receive(SteadyTime now, SessionId session, const Message& message);
  void OnProgress(WorkerId worker, const WorkerStats& stats) {
    contributors_.OnProgress(worker, stats);
  }
  void OnTick(SteadyTime now);
  // The session has ended.
  void Lose(SteadyTime now, SessionId session, const std::string& why);
  // Ends the session and loses its member.
  void Drop(SteadyTime now, SessionId session, const std::string& why);
  // Every desired worker has done its part.
  bool IsComplete() const { return roster_.IsComplete(resizer_.desired().workers); }

  // As JobCore::Resize and SetMode.
  absl::Status Resize(SteadyTime now, const JobSize& size);
  absl::Status SetMode(SteadyTime now, const ModeChange& change);

  // After every event: what follows from it, as far as no further message is needed. `checkpoints`
  // is the folder to rebuild lost shards from, or empty; `is_saved`: the last checkpoint of a job
  // that has succeeded is complete.
  void Settle(SteadyTime now, const std::string& checkpoints, bool is_saved);

 private:
  // One for each message and kind of sender: a registered server, a registered worker, or, as
  // SessionId, anybody.
  void On(SessionId session, const RegisterServer& message);
  void On(SessionId session, const RegisterWorker& message);
  void On(WorkerId worker, const RegisterTensors& message);
  void On(ServerId server, const TensorsInstalled& message);
  void On(ServerId server, const Restored& message);
  void On(WorkerId worker, const Leave& message);
  void On(ServerId server, const DrainRequest& message);
  void On(SessionId session, const ServerReport& message);
  void On(SessionId session, const WorkerReport& message);
  void On(ServerId server, const ViewAnswer& message) { contributors_.OnAnswer(server, message); }
  void On(WorkerId worker, const StepsHeld& message) { contributors_.OnHeld(worker, message); }
  void On(ServerId server, const Promises& message) { shards_.OnPromises(server, message); }
  void On(ServerId, const CaughtUp& message) { shards_.OnCaughtUp(message); }
  void On(ServerId, const HandedOver& message) { shards_.OnHandedOver(message); }
  void On(WorkerId worker, const ShardCopies& message) { shards_.OnCopies(worker, message); }
  void On(ServerId server, const Rebuilt& message) { FailIf(shards_.OnRebuilt(server, message)); }

  absl::Status CheckRegistration(Term promised, const absl::Status& index);
  void Welcome(SessionId session, Term promised);
  void Lose(const MemberRegistry::Server& server, const std::string& why);
  void Lose(const MemberRegistry::Worker& worker, const std::string& why);

  void PrepareShards();
  void OnPlaced();
  void Retarget();
  void UpdateServers();
  void SendServerList() {
    outbox_.SendToMembers(SetServers{registry_.Endpoints(), resizer_.desired()});
  }

  void AdvanceRecovery();
  void Recover(const CollectedJob& job);
  void RecoverWorkers(const View& view);

  void AdvanceLosses(const std::string& checkpoints);
  void ReleaseServers(bool is_saved);
  void FailIf(std::optional<JobFailure> failure) {
    if (failure) lifecycle_.Fail(now_, *std::move(failure));
  }

  const JobCoreOptions& options_;
  MemberRegistry& registry_;
  JobLifecycle& lifecycle_;
  JobStatistics& statistics_;
  StallWatch& stalls_;
  Outbox& outbox_;
  SteadyTime now_;  // of the event under way
  ShardDirectory shards_;
  Contributors contributors_;
  Resizer resizer_;
  Recovery recovery_;
  WorkerRoster roster_;
  Step end_step_;
  WorkerRegistration tensors_;
};

template <typename Message>
void JobMembers::Receive(SteadyTime now, SessionId session, const Message& message) {
  now_ = now;
  if (is_recovering() && !Recovery::IsUnderstood(message)) return;
  if constexpr (requires { On(session, message); }) {
    On(session, message);
  } else if constexpr (requires { On(ServerId{}, message); }) {
    if (const std::optional<ServerId> server = registry_.ServerAt(session))
      return On(*server, message);
    outbox_.Refuse(session, absl::FailedPreconditionError("only a server can send this message"));
  } else {
    if (const std::optional<WorkerId> worker = registry_.WorkerAt(session))
      return On(*worker, message);
    outbox_.Refuse(session, absl::FailedPreconditionError("only a worker can send this message"));
  }
}

}  // namespace pushpull
