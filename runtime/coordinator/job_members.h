// SPDX-License-Identifier: Apache-2.0
//
// The members of a job as they register, leave and die, and the effects on the parts that depend on
// them:
//
//   member_registry.h   sessions, roles           resizer.h          desired size, drains
//   contributors.h      views, modes              shard_directory.h  replica sets
//   recovery.h          a new coordinator's start loss_handler.h     shards without a holder
//
// Each of them decides only about its own state; the order in which an event reaches them is
// decided here. Pure.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"

#include "runtime/base/ids.h"
#include "runtime/coordinator/contributors.h"
#include "runtime/coordinator/job_state.h"
#include "runtime/coordinator/loss_handler.h"
#include "runtime/coordinator/recovery.h"
#include "runtime/coordinator/resizer.h"
#include "runtime/coordinator/shard_directory.h"
#include "runtime/coordinator/worker_roster.h"
#include "runtime/membership/job_status.h"

namespace pushpull {

// Thread-compatible. Failures of the job go to its lifecycle.
class JobMembers {
 public:
  // `job` is used, not owned, and outlives this object.
  explicit JobMembers(JobState& job)
      : job_(job),
        shards_(job),
        losses_(job, shards_),
        contributors_(job, shards_.catalog()),
        resizer_(job.options, job.members),
        recovery_(job.options, job.members) {}

  const ShardDirectory& shards() const { return shards_; }
  const LossHandler& losses() const { return losses_; }
  const Contributors& contributors() const { return contributors_; }
  Contributors& contributors() { return contributors_; }
  const Resizer& resizer() const { return resizer_; }
  const WorkerRoster& roster() const { return roster_; }
  // The highest step before which workers have announced to leave.
  Step end_step() const { return end_step_; }
  bool is_recovering() const { return recovery_.is_under_way(); }
  // The worker that contributed last did not leave in order.
  bool was_last_lost() const { return was_last_lost_; }
  // The coordinator's process is about to end: admits no other worker, and moves no shards while
  // every server is about to end as well.
  void SetEnding();

  // A message that concerns members, shards or views. A sender that may not send it loses its
  // session.
  template <typename Message>
  void Receive(SessionId session, const Message& message) {
    if (is_recovering() && !Recovery::IsUnderstood(message)) return;
    if constexpr (requires { On(session, message); }) {
      On(session, message);
    } else if constexpr (requires { On(ServerId{}, message); }) {
      if (const std::optional<ServerId> server = job_.members.ServerAt(session))
        return On(*server, message);
      job_.outbox.Refuse(session,
                         absl::FailedPreconditionError("only a server can send this message"));
    } else {
      if (const std::optional<WorkerId> worker = job_.members.WorkerAt(session))
        return On(*worker, message);
      job_.outbox.Refuse(session,
                         absl::FailedPreconditionError("only a worker can send this message"));
    }
  }
  void OnTick();
  // The session has ended.
  void Lose(SessionId session, const std::string& why);
  // Ends the session and loses its member.
  void Drop(SessionId session, const std::string& why) {
    job_.outbox.Add(CloseSession{session});
    Lose(session, why);
  }
  // The workers have done their part by spec.restart.successPolicy, and the result has survived: a
  // lost shard is rebuilt from the workers first, so they stay while a shard has no primary.
  bool IsComplete() const {
    return roster_.IsComplete(resizer_.desired().workers, job_.options.success_policy) &&
           !losses_.is_under_way() && shards_.replicas().HasEveryPrimary();
  }

  // As JobCore::Resize and SetMode.
  absl::Status Resize(const JobSize& size);
  absl::Status SetMode(const ModeChange& change);

  // To be called after every event: does all that follows from it without another message.
  // `checkpoint` is the one to rebuild lost shards from, or empty; `is_saved`: the last checkpoint
  // of a job that has succeeded is complete.
  void Settle(const std::string& checkpoint, bool is_saved);

 private:
  // One per message and kind of sender: a registered server, a registered worker, or, with
  // SessionId, anyone.
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
  void On(WorkerId worker, const ShardCopies& message) { losses_.OnCopies(worker, message); }
  void On(ServerId server, const Rebuilt& message) { losses_.OnRebuilt(server, message); }

  void Welcome(SessionId session, Term promised);
  void Lose(const MemberRegistry::Server& server, const std::string& why);
  void Lose(const MemberRegistry::Worker& worker, const std::string& why);

  void PrepareShards();
  void RegisterWaiting();
  void AdmitReady();
  void OnPlaced();
  void Retarget();
  void UpdateServers();
  void SendServerList() {
    job_.outbox.SendToMembers(SetServers{job_.members.Endpoints(), resizer_.desired()});
  }

  void AdvanceRecovery();
  void Recover(const CollectedJob& job);
  void RecoverWorkers(const View& view);

  void AdvanceLosses(const std::string& checkpoint);
  void ReleaseServers(bool is_saved);

  JobState& job_;
  ShardDirectory shards_;
  LossHandler losses_;
  Contributors contributors_;
  Resizer resizer_;
  Recovery recovery_;
  WorkerRoster roster_;
  Step end_step_;
  bool is_ending_ = false;
  bool was_last_lost_ = false;
  std::map<WorkerId, RegisterTensors> waiting_;  // until the first can be placed on servers
};

}  // namespace pushpull
