// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's decisions, as a function of the messages it receives and of the time. It sends
// nothing itself: each call returns commands for coordinator.h to carry out, so that simulations
// run the product's own decisions. JobCore answers users' requests and takes the job through its
// phases; job_members.h decides everything about members, shards and views.
//
//   recovering --6--> running (or waiting for servers)
//
//   waiting for servers --1--> ready --2--> waiting for workers --3--> running --4--> succeeded
//          |                      |                   |                    |
//          +----------------------+---------5---------+--------------------+--> failed
//
// 1 Servers 0 to spec.servers.replicas - 1 are registered.
// 2 The first worker's tensors are placed, and the servers have the first replica sets.
// 3 spec.workers.replicas workers have registered the same tensors: the first view is agreed on.
//   Later, workers join, are replaced and are released at any time; steps continue meanwhile.
// 4 The workers have done their part by spec.restart.successPolicy, and left.
// 5 A member reports a failure, or a server was lost with the only copy of a shard that cannot be
//   rebuilt from the workers' copies. Any other loss of a server is a failover.
// 6 Enough members have reported what they know to a coordinator that replaces an earlier one.
//   Deaths, joins and moves wait until then.
//
// A coordinator that was itself away cannot tell which members are lost. It steps down, in any
// phase but the last, and the next one asks the members.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/coordinator/checkpoint_saver.h"
#include "runtime/coordinator/job_members.h"
#include "runtime/coordinator/job_state.h"
#include "runtime/coordinator/own_silence.h"
#include "runtime/coordinator/takedown.h"
#include "runtime/coordinator/trace_collector.h"

namespace pushpull {

// Thread-compatible.
class JobCore {
 public:
  explicit JobCore(JobCoreOptions options)
      : job_(std::move(options)),
        own_silence_(job_.options.peer_timeout),
        members_(job_),
        saver_(job_, members_),
        takedown_(job_, members_, saver_),
        traces_(job_.options.term) {}

  std::vector<Command> OnMessage(SteadyTime now, SessionId session, const FromMember& message);
  std::vector<Command> OnClosed(SteadyTime now, SessionId session, const absl::Status& why);
  // Finds members that have been silent for too long; to be called a few times per peer_timeout.
  std::vector<Command> OnTick(SteadyTime now);
  // Who comes after a coordinator that ends.
  enum class Successor {
    kNone,    // whoever runs the job takes it down
    kMayCome  // unknown: a pod was deleted or its node drained, or the job is over
  };
  // The coordinator's process was told to end and goes on for a while. If all members end with it,
  // their last step is saved before it is needed no more.
  std::vector<Command> BeginLeave(SteadyTime now);
  // The coordinator ends. Tells members to end as well if no other coordinator will follow, or if
  // nobody needs one; otherwise they wait for the next one.
  std::vector<Command> OnStop(Successor successor = Successor::kMayCome);
  // The job is over, or every member that could continue with another coordinator has left or is
  // about to, and what they leave is saved: the whole job is being taken down.
  bool IsNeededNoMore() const { return HasNobodyToServe() && saver_.is_idle(); }
  const Takedown& takedown() const { return takedown_; }
  bool is_saving() const { return !saver_.is_idle(); }

  // Changes the desired number of servers and workers: the indices 0 to n - 1. The launcher or the
  // operator starts the missing ones. Servers above are told to stop once they hold nothing;
  // workers above are released and leave after their current step. Likewise the samples per step:
  // the next step that is divided among the workers uses the new number, Status says when.
  //
  // kUnavailable, from this and the other requests: a new coordinator is collecting its members'
  // state, try again. kInvalidArgument: outside the manifest's limits, or no more servers than the
  // replication. kFailedPrecondition: the job is over or has not started, or divides no samples.
  // Nothing has changed after an error.
  absl::StatusOr<std::vector<Command>> Resize(SteadyTime now, const JobSize& size);

  // Starts a checkpoint, or queues it behind the one under way. kFailedPrecondition: the job has no
  // spec.checkpoint, has not started or is over.
  // On success its number is Status().checkpoint.requested.
  absl::StatusOr<std::vector<Command>> SaveCheckpoint(SteadyTime now);
  std::vector<Command> OnManifest(SteadyTime now, uint64_t attempt, const absl::Status& written);
  std::vector<Command> OnCleared(SteadyTime now, uint64_t attempt);
  std::vector<Command> OnProbed(SteadyTime now, const absl::Status& written);

  // Starts a change of the mode, the staleness, or both, at a step boundary; Status says when it is
  // in force. kInvalidArgument: it contradicts itself or the manifest; kFailedPrecondition: the job
  // is over or has not started, or another change is under way. Nothing has changed after an error.
  absl::StatusOr<std::vector<Command>> SetMode(SteadyTime now, const ModeChange& change);

  // Tells the workers to record their next steps; traces().number() is then the trace's number.
  // kInvalidArgument: out of range; kFailedPrecondition: the job is over or has not started, or has
  // no worker.
  absl::StatusOr<std::vector<Command>> StartTrace(SteadyTime now, const TraceRequest& request);
  TraceCollector& traces() { return traces_; }

  JobStatus Status(SteadyTime now) const;

 private:
  // First in every event.
  void Begin(SteadyTime now);
  // kUnavailable: this coordinator does not know the job's state yet, or is ending.
  absl::Status CheckKnown() const;
  bool StepsDownOver(SessionId closing);
  bool CountsAsLost(SessionId session) const;
  void StepDown(const std::string& why);
  void DropSilent();

  // The messages that do not concern members_ alone.
  void On(SessionId session, const Heartbeat& message);
  void On(SessionId session, const Failure& message);
  void On(SessionId session, const Leave& message);
  void On(SessionId session, const Restored& message);
  void On(SessionId session, const Captured& message);
  void On(SessionId session, const TraceReport& message);
  void On(SessionId session, const RingStopped& message);
  void On(SessionId session, const RingNews& message);

  bool HasNobodyToServe() const;
  std::vector<Command> Settle();
  void WatchStall();
  void WatchCulprits();
  void WatchRacks();
  void StopAll(const absl::Status& status);

  JobState job_;
  OwnSilence own_silence_;
  JobMembers members_;
  CheckpointSaver saver_;
  Takedown takedown_;
  TraceCollector traces_;
  bool has_announced_failure_ = false;
  bool are_in_one_rack_ = false;  // all replicas of some shards, as last logged
  bool is_stopped_ = false;       // this coordinator ends and decides nothing more
};

}  // namespace pushpull
