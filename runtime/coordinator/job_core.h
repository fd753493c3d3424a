// SPDX-License-Identifier: Apache-2.0
//
// Everything the coordinator decides, as a function of what it is told and of the time: which
// members there are, which tensors, which view, when the job has failed. It sends nothing itself:
// each call returns what is to be sent. Pure, so that a simulation runs the product's own
// decisions.
//
//   recovering --6--> running (or waiting for servers)
//
//   waiting for servers --1--> ready --2--> waiting for workers --3--> running --4--> succeeded
//          |                      |                   |                    |
//          +----------------------+---------5---------+--------------------+--> failed
//
// 1 all spec.servers.replicas are registered.
// 2 the first worker's tensors are placed and sent to the servers, with the first replica sets.
// 3 all spec.workers.replicas have registered the same tensors: the first view is agreed on. Later
//   workers may come, be replaced and be released at any time; steps go on without them.
// 4 every worker that is wanted has done its part and left.
// 5 a member reports a failure, or a server is lost that held something alone and the workers'
//   copies may not, or cannot, take its place (job_core_losses.cc). Otherwise replica_agreement.h
//   brings the shards of a lost server to others.
// 6 Of a coordinator that was started anew: enough members have said what they know
//   (collection.h, job_core_recovery.cc). Deaths, joins and moves wait until then.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/ids.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/coordinator/checkpoint_agreement.h"
#include "runtime/coordinator/codec_rules.h"
#include "runtime/coordinator/collection.h"
#include "runtime/coordinator/job_statistics.h"
#include "runtime/coordinator/loss_log.h"
#include "runtime/coordinator/loss_recovery.h"
#include "runtime/coordinator/mode_switch.h"
#include "runtime/coordinator/replica_agreement.h"
#include "runtime/coordinator/resize_log.h"
#include "runtime/coordinator/stall_watch.h"
#include "runtime/coordinator/tensor_catalog.h"
#include "runtime/coordinator/view_agreement.h"
#include "runtime/coordinator/worker_roster.h"
#include "runtime/membership/control.h"
#include "runtime/membership/job_status.h"
#include "runtime/membership/session.h"

namespace pushpull {

struct JobCoreOptions {
  JobSettings settings;
  Consistency consistency = {};        // what the job begins with: spec.sync.mode, staleness
  uint32_t min_servers = 1;            // spec.servers.minReplicas
  uint32_t max_servers = 1024;         // spec.servers.maxReplicas
  uint32_t min_workers = 1;            // spec.workers.minReplicas
  uint32_t max_workers = 4096;         // spec.workers.maxReplicas
  bool has_colocated_servers = false;  // spec.workers.colocatedServer
  Term term{1};
  Duration heartbeat = std::chrono::seconds(1);
  StallPolicy on_stall = StallPolicy::kWarn;         // spec.sync.onStall
  Duration peer_timeout = std::chrono::seconds(20);  // spec.restart.peerTimeoutSeconds
  // After a server is lost, how long the workers have to say which tensor and step it cost them.
  Duration failure_grace = std::chrono::seconds(1);
  std::optional<CheckpointPolicy> checkpoint = {};  // spec.checkpoint
  std::optional<LoadedCheckpoint> restore = {};     // where the job begins
  // Whether what members know comes first: no, this is the job's first coordinator; where they know
  // something; or it is certain that they do, so that they are waited for.
  enum class Recovery { kNone, kIfKnown, kExpected };
  Recovery recovery = Recovery::kNone;
  // From the first word on: how long the others may take to find this coordinator, and how long
  // those without whom values would be lost.
  Duration collect_grace = std::chrono::seconds(3);
  Duration loss_grace = std::chrono::seconds(20);
  // Shards that nobody holds any more are made anew from what the workers have, when loss_grace is
  // over for those who held them. Without, they end the job.
  bool repairs_losses = false;
};

struct SendMessage {
  SessionId session;
  ToMember message;
};
struct CloseSession {
  SessionId session;
};
// One line for the log.
struct Announce {
  bool is_problem = false;
  std::string text;
};
// The files of a checkpoint are there: write its manifest, then remove what is not to be kept.
// OnManifest follows.
struct SaveManifest {
  uint64_t attempt = 0;
  std::string folder;  // of all checkpoints
  uint32_t keep = 1;
  CheckpointManifest manifest;  // without files and chunks
  std::vector<ChunkFileSummary> files;
};
// Remove what a failed attempt has left, unless there is a complete checkpoint of that step.
// OnCleared follows.
struct ClearCheckpoint {
  uint64_t attempt = 0;
  std::string folder;
  Step step;
};
using Command = std::variant<SendMessage, CloseSession, Announce, SaveManifest, ClearCheckpoint>;

// Thread-compatible.
class JobCore {
 public:
  explicit JobCore(JobCoreOptions options);

  std::vector<Command> OnMessage(SteadyTime now, SessionId session, const FromMember& message);
  std::vector<Command> OnClosed(SteadyTime now, SessionId session, const absl::Status& why);
  // Finds members that have been silent for too long; called a few times per peer_timeout.
  std::vector<Command> OnTick(SteadyTime now);
  // The coordinator ends. Members are told to end when it is needed no more; else they wait for the
  // next one, for it is the job's place that changes, not the job: a pod is deleted, or its node
  // drained.
  std::vector<Command> OnStop();
  bool IsNeededNoMore() const;
  // How many servers and workers the job shall have: indices 0 to n - 1. Those that are missing are
  // to be started by who starts processes. Servers above are told to stop when they hold nothing
  // any more; workers above are released: they leave after the step they are in.
  // kInvalidArgument: outside of the options' bounds, or not more servers than the replication;
  // kFailedPrecondition: the job is over or has not begun. Nothing has changed then.
  absl::StatusOr<std::vector<Command>> Resize(SteadyTime now, const JobSize& size);

  // Begins to save a checkpoint, or queues it behind the one under way. kFailedPrecondition: the
  // job has no checkpoints, has not begun or is over.
  struct Save {
    uint64_t number = 0;  // CheckpointStatus says when it is over
    std::vector<Command> commands;
  };
  absl::StatusOr<Save> SaveCheckpoint(SteadyTime now);
  std::vector<Command> OnManifest(SteadyTime now, uint64_t attempt, const absl::Status& written);
  std::vector<Command> OnCleared(SteadyTime now, uint64_t attempt);

  // Another mode, staleness or both, from a step boundary on. Servers and workers need a moment;
  // Status says when it is in force. kInvalidArgument: it contradicts itself or the manifest;
  // kFailedPrecondition: the job is over or has not begun, or another change is under way. Nothing
  // has changed then.
  absl::StatusOr<std::vector<Command>> SetMode(SteadyTime now, const ModeChange& change);

  JobStatus Status(SteadyTime now) const;

 private:
  struct Server {
    RegisterServer info;
    uint64_t table_version = 0;  // that it has confirmed
    bool is_leaving = false;     // it holds nothing and was told to stop
    uint64_t leave_turn = 0;     // rank among those who asked to leave; 0: it did not
  };
  struct Worker {
    RegisterWorker info;
    bool has_registered_tensors = false;
    bool is_leaving = false;
  };
  struct Member {
    SteadyTime last_heard;
    std::variant<std::monostate, Server, Worker> role;
  };
  // One for each alternative of FromMember.
  void On(SessionId session, const RegisterServer& message);
  void On(SessionId session, const RegisterWorker& message);
  void On(SessionId session, const RegisterTensors& message);
  void On(SessionId session, const TensorsInstalled& message);
  void On(SessionId session, const ViewAnswer& message);
  void On(SessionId session, const Promises& message);
  void On(SessionId session, const MemberCaughtUp& message);
  void On(SessionId session, const HandedOver& message);
  void On(SessionId session, const StepsHeld& message);
  void On(SessionId session, const Heartbeat& message);
  void On(SessionId session, const Leave& message);
  void On(SessionId session, const AskToLeave& message);
  void On(SessionId session, const Failure& message);
  void On(SessionId session, const Captured& message);
  void On(SessionId session, const Restored& message);
  void On(SessionId session, const ServerReport& message);
  void On(SessionId session, const WorkerReport& message);
  void On(SessionId session, const ShardCopies& message);
  void On(SessionId session, const Rebuilt& message);

  // job_core_losses.cc
  bool MayRepair() const;
  std::string WhyNotRepaired() const;
  void BeginRepair(const std::vector<ShardId>& lost);
  void AdvanceLosses();
  void TakeRecovered();
  void StopWaitingForReplaced();
  std::map<WorkerId, SessionId> WorkersOfView() const;
  LossRecovery::Job LossView(const std::map<WorkerId, SessionId>& workers) const;
  std::string CheckpointsOfJob() const;
  void CarryOut(const LossRecovery::Orders& orders, const std::map<WorkerId, SessionId>& workers);
  void Rebuild(const ShardPlan& plan, const std::map<WorkerId, SessionId>& workers);

  // Those with the indices 0 to count - 1.
  static std::set<ServerId> FirstServers(uint32_t count);
  // How steps are counted where the job begins: a checkpoint may say that numbers run ahead.
  static Consistency FirstConsistency(const JobCoreOptions& options);

  // job_core_leaving.cc
  // Of spec.servers, or beside a worker that is wanted.
  bool IsWanted(ServerId server) const;
  // Those of spec.servers, so many.
  bool AreFirstThere(uint32_t count) const;
  std::set<ServerId> TargetServers() const;
  bool HasLeavingServers() const;
  void Retarget();
  bool MayGo(ServerId id, const Server& server) const;
  void ReleaseDrained();

  // job_core_recovery.cc
  static bool IsOfThisTerm(const FromMember& message);
  bool IsSuperseded(SessionId session, Term promised);
  bool IsGivenUp(const RegisterWorker& worker) const;
  void AskForReport(SessionId session, Term promised);
  void RecoverIfKnown();
  void Recover(const CollectedJob& job);
  void RestoreShards(const CollectedJob& job);
  void RestoreWorkers(const CollectedJob& job);
  void RemindOfMembership(SessionId session, const Worker& worker);

  // What is to be sent, after everything that follows from it.
  std::vector<Command> TakeCommands();
  void Refuse(SessionId session, absl::Status why);
  void ForgiveOwnPause();
  void Lose(SessionId session, const std::string& why);
  void LoseServer(const Server& server, const std::string& why);
  void LoseWorker(const Worker& worker, const std::string& why);
  void Fail(const std::string& text, uint32_t exit_code = 0);
  void StopAll(const absl::Status& status);

  void PrepareCatalog();
  void PlaceShards();
  void WelcomeLateServer(const RegisterServer& server, SessionId session);
  void UpdateServers();
  void RegisterWaiting();
  CodecRules CodecRulesIn(const Consistency& consistency) const;
  void AdmitReady();
  void Carry(ViewChange change);
  void Carry(const ReplicaChange& change, bool are_first = false);
  void PlaceFirst(const ReplicaChange& first);
  void EndIfComplete();
  void WatchStall();

  // job_checkpoint.cc
  CheckpointAgreement::Job CheckpointView() const;
  void Carry(CheckpointChange change);
  void UpdateCheckpointServers();
  void UpdateCheckpointWorkers();
  void SendToCapturing(const ToMember& message);
  void SaveAtEnd();
  bool IsRestorable(const std::vector<TensorSpec>& tensors);
  void RestoreThen(ReplicaChange first);

  // job_core_requests.cc
  absl::Status CheckSize(const JobSize& size) const;
  void ResizeServers(uint32_t servers);
  void ResizeWorkers(uint32_t workers);
  void TellWanted();
  ResizeLog::Totals ResizeTotals() const;
  bool IsSettled() const;
  void AdvanceModeSwitch();

  void Send(SessionId session, ToMember message);
  void SendToServers(const ToMember& message);
  void SendToWorkers(const ToMember& message);
  void Say(std::string text, bool is_problem = false);
  Welcome MakeWelcome() const;
  SetServers MakeServerList() const;
  SetReplicas MakeReplicas() const;
  std::set<ServerId> ServersThere() const;
  bool AllServersHave(uint64_t table_version) const;
  SessionId SessionOfWorker(WorkerId worker) const;

  template <typename Role>
  Role* Find(SessionId session) {
    const auto it = members_.find(session);
    return it == members_.end() ? nullptr : std::get_if<Role>(&it->second.role);
  }

  const JobCoreOptions options_;
  SteadyTime now_;
  std::optional<SteadyTime> ticked_at_;
  std::vector<Command> commands_;

  std::map<SessionId, Member> members_;
  std::map<ServerId, SessionId> servers_;
  WorkerRoster workers_;
  std::map<SessionId, RegisterTensors> waiting_;  // until shards are placed
  std::vector<ServerId> primaries_;  // where chunks are placed at first, by shard; empty before
  TensorCatalog catalog_;
  ViewAgreement agreement_;
  ModeSwitch mode_switch_;
  ReplicaAgreement replicas_;
  std::optional<CheckpointAgreement> checkpoints_;
  // The first entries, until the servers have the checkpoint's chunks.
  std::optional<ReplicaChange> first_entries_;
  std::set<ServerId> restored_;  // servers that have theirs
  uint32_t wanted_servers_;
  std::set<ServerId> target_;  // of replicas_, as last set
  uint64_t leave_turns_ = 0;
  uint64_t wanted_revision_ = 1;          // rises with each change of wanted_servers_
  std::optional<Collection> collection_;  // while recovering
  std::optional<SteadyTime> first_word_at_;
  bool has_named_missing_ = false;
  std::map<SessionId, Leave> deferred_leaves_;  // until recovered
  Term highest_term_;                           // that any member has promised
  JobStatistics statistics_;
  ResizeLog resizes_;
  StallWatch stalls_;
  // A lost shard that a server has been told to make anew, and that server's word.
  struct Rebuilding {
    ShardPlan plan;
    Rebuilt word;
    bool is_done = false;
  };
  LossRecovery losses_;
  LossLog loss_log_;
  std::map<ShardId, Rebuilding> rebuilds_;

  JobPhase phase_ = JobPhase::kStarting;
  std::string failure_;
  uint32_t failure_exit_code_ = 0;
  bool is_stopped_ = false;              // ends itself, and misses nobody
  Step end_step_;                        // of the workers that have left
  std::optional<SteadyTime> failed_at_;  // a server is lost; details may still come
  std::optional<SteadyTime> started_at_;
  std::optional<SteadyTime> ended_at_;
};

}  // namespace pushpull
