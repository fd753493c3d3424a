// SPDX-License-Identifier: Apache-2.0
//
// What servers and workers say to the coordinator and what it says to them: plain structs, one
// session (an ordered, two-way stream) for each member. The wire form is
// proto/pushpull/v1/control.proto; session_client.cc and session_service.cc convert.
//
//   member --RegisterServer | RegisterWorker--> coordinator --Welcome--> member
//   worker --RegisterTensors--> coordinator --InstallTensors--> servers --TensorsInstalled-->
//          coordinator --ProposeView--> servers --ViewAnswer--> --ActivateView--> all
//          --TensorsRegistered--> worker
//
//   replica sets: coordinator --SetReplicas--> all; servers --Promises-->
//          primary --MemberCaughtUp--> coordinator
//          coordinator --Handover--> old primary ==data channel==> new primary --HandedOver-->
//          coordinator
//
//   a server that is to end: server --AskToLeave--> coordinator, replica sets as above,
//          coordinator --Stop--> server
//
//   a shard that nobody holds any more:
//          coordinator --SetReplicas (no primary)--> all, --CollectCopies--> workers
//          --ShardCopies--> coordinator --RebuildShard--> new primary, --OfferCopies--> workers
//          ==data channel==> new primary --Rebuilt--> coordinator --SetReplicas--> all
//
//   checkpoints: coordinator --Capture--> servers --Captured--> coordinator --EndCapture--> servers
//          coordinator --Restore--> servers --Restored--> coordinator --SetReplicas, the first-->
//   after a new start of the coordinator: member --RegisterServer | RegisterWorker (promised
//   term)-->
//          coordinator --Welcome, Collect--> member --ServerReport | WorkerReport--> coordinator
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/deadline.h"
#include "runtime/base/ids.h"
#include "runtime/base/quantiles.h"
#include "runtime/checkpoint/chunk_file.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/consistency/view.h"
#include "runtime/job/training_job.h"
#include "runtime/membership/stall.h"
#include "runtime/metrics/sync_phase.h"
#include "runtime/shard/shard_map.h"
#include "runtime/store/tensor_spec.h"

namespace pushpull {

// The part of the manifest that members need.
struct JobSettings {
  std::string job;
  uint32_t workers = 1;  // spec.workers.replicas
  uint32_t servers = 1;
  uint32_t replication = 0;  // followers of each shard
  // The servers divide each step's samples among the workers. Without steps that all take each
  // worker has a part of its own instead. The same for the whole job.
  bool divides_samples = true;
  uint64_t global_batch = 0;  // spec.workers.globalBatch; 0: each worker has a batch of its own
  bool deterministic = false;
  NonFinitePolicy non_finite = NonFinitePolicy::kFail;
  bool scale_by_staleness = false;
  Duration stall = std::chrono::seconds(10);  // spec.sync.stallSeconds
  // What the workers have of a shard is all there is beside its server: they give up no value
  // before the next one has come whole.
  bool keeps_copies = false;
  // How long a member that has lost its coordinator waits for the next one.
  Duration coordinator_patience = std::chrono::seconds(60);
};

// ---- member -> coordinator ----

struct RegisterServer {
  ServerId server;
  Incarnation incarnation;
  std::string data_address;  // that workers connect to: [grpc://]host:port
  std::string metrics_address;
  uint32_t lanes = 1;
  double weight = 1;  // share of the parameters relative to other servers
  uint64_t pid = 0;
  Term promised;  // highest term of a Welcome that this process has taken; 0 before the first
};

struct RegisterWorker {
  WorkerId worker;
  Incarnation incarnation;
  std::string metrics_address;
  uint64_t pid = 0;
  Term promised;           // as of RegisterServer
  bool is_member = false;  // TensorsRegistered has come to this incarnation
};

// How many members the job shall have, as the coordinator last said; a higher revision is newer.
struct WantedSize {
  uint64_t revision = 0;  // 0: nothing was said
  uint32_t servers = 0;   // indices 0 to servers - 1
  uint32_t workers = 0;   // likewise
};

// The worker's whole list of tensors. Answered by TensorsRegistered when every server has them and
// this worker is a member of an active view.
struct RegisterTensors {
  std::vector<TensorSpec> tensors;
};

// A server has applied everything up to this table version.
struct TensorsInstalled {
  uint64_t table_version = 0;
};

// A server's answer to ProposeView. `lowest_free_step` is above every completed step and every step
// that holds a contribution: a joiner may start there.
struct ViewAnswer {
  uint64_t number = 0;
  bool is_accepted = false;
  Step lowest_free_step;
};

// What a server has of a shard, the answer to each entry of SetReplicas that concerns it. From then
// on it takes nothing of an epoch below entry.epoch.
struct Promise {
  ShardId shard;
  ReplicaSet entry;      // the one in force on the server: that of the message or a higher one
  uint64_t seq = 0;      // number of the last log entry it has applied
  bool is_full = false;  // it holds everything that was published
};

struct Promises {
  std::vector<Promise> promises;
};

// A primary's word: `member` has everything that was published, and nothing will be published that
// it does not have, as long as `epoch` is in force.
struct MemberCaughtUp {
  ShardId shard;
  Epoch epoch;
  ServerId member;
};

// A new primary's word that it reigns under `entry`, after a Handover.
struct HandedOver {
  ShardId shard;
  ReplicaSet entry;
};

// The answers to HoldSteps: at once with the step that it will not begin, and again when all steps
// below `until` are done.
struct StepsHeld {
  uint64_t round = 0;
  Step next_step;  // of its pushes, all below have begun
  bool is_drained = false;
};

struct LossPoint {
  Step step;
  double loss = 0;
  uint64_t samples = 0;
};

// Cumulative since the worker's start, except for `losses`, which are those since the last one.
struct WorkerStats {
  static constexpr size_t kUnevenStepsMax = 64;  // the newest are kept

  Step step;  // steps whose parameters are all back
  uint64_t samples = 0;
  uint64_t bytes_pushed = 0;
  uint64_t bytes_pulled = 0;
  uint64_t resends = 0;
  Quantiles sync_seconds;
  std::array<Quantiles, kSyncPhaseCount> phase_seconds;
  std::vector<LossPoint> losses;
  std::map<std::string, double>
      results;  // what the program reported at its end: loss, accuracy, ...
  // Whose chunks had different contributors, by the numbers that travel with pushes.
  std::vector<Step> uneven_steps;
};

struct ServerStats {
  uint64_t bytes_owned = 0;  // of parameters
  uint64_t chunks = 0;
  Step lowest_version;  // over its chunks
  Step highest_version;
  uint32_t contributors_min = 0;  // over all completed chunk steps; 0 before the first
  uint32_t contributors_max = 0;
  uint64_t duplicates = 0;
  uint64_t bytes_replicated = 0;  // sent to followers and learners since the start
  uint64_t bytes_copied = 0;      // values and optimizer state received of shards that came here
  std::optional<Stall> stall;     // the longest
};

// Every second; silence for spec.restart.peerTimeoutSeconds means death.
struct Heartbeat {
  std::variant<ServerStats, WorkerStats> stats;
};

// The worker contributes to no step from end_step on and will end.
struct Leave {
  Step end_step;
  WorkerStats stats;
  bool is_released = false;  // because of Release, and not because it is done
};

// Answers to Collect of this term: everything that a new coordinator cannot know otherwise.
struct ServerReport {
  Term term;
  std::vector<PlacedTensor> tensors;                    // installed; empty before InstallTensors
  std::vector<std::pair<ShardId, ReplicaSet>> entries;  // of every shard, member or not
  std::vector<Promise> promises;                        // of the shards that it is a member of
  View active;
  std::optional<View> proposed;
  WantedSize wanted;
};

struct WorkerReport {
  Term term;
  std::vector<std::pair<ShardId, ReplicaSet>> entries;
  Step step;  // it has this version of every chunk
  WantedSize wanted;
};

// A server's process is to end, though the job wants as many as before: its shards shall go to
// others, and its place to another process. Said again in each session. Answered by Stop when it
// holds nothing.
struct AskToLeave {};

// The member cannot go on; the job fails with this text, which names peer, tensor and step.
struct Failure {
  absl::Status status;
};

// A server's part of a checkpoint, or a worker's: its pushes of the step before went with all that
// codecs had left out of earlier ones, or, kAborted, did not.
//
// Of a server: every chunk over which it reigns is captured and in these files.
// Comes again, with the files that were added, when shards came to it while the capture was under
// way. Its own mistakes apart, the server has nothing left of an attempt whose status is not OK:
//
// kAborted             a chunk is past the step; try one that is not below `highest_version`.
// kFailedPrecondition  with is_last: a chunk has not reached the step, and will not.
// others               the files cannot be written. Give up this save.
struct Captured {
  uint64_t attempt = 0;
  absl::Status status;
  Step highest_version;  // with kAborted: of its chunks
  std::vector<ChunkFileSummary> files;
};

// The chunks of the shards that Restore named are in place, or why not; the text of kDataLoss has
// file and offset.
struct Restored {
  absl::Status status;
};

// What a worker has of a chunk.
struct ChunkCopy {
  enum class Kind : uint8_t {
    kNone = 0,     // nothing that could be used
    kWhole = 1,    // the value of `version`
    kInitial = 2,  // its own initial value, which is still to be answered
  };
  ChunkId chunk;
  Kind kind = Kind::kNone;
  Step version;
  Step known;             // highest version that it was told of, with or without the value
  uint64_t checksum = 0;  // XXH3-64 of the value
  friend bool operator==(const ChunkCopy&, const ChunkCopy&) = default;
};

// A worker's answer to CollectCopies, one for each shard, with all its chunks. From then on the
// worker takes nothing that was published under an epoch below the entry's.
struct ShardCopies {
  uint64_t round = 0;
  ShardId shard;
  std::vector<ChunkCopy> chunks;
};

// A server's answer to RebuildShard: it reigns under `entry`, or why it cannot.
struct Rebuilt {
  ShardId shard;
  ReplicaSet entry;
  absl::Status status;
  bool has_optimizer_state = false;  // the optimizers of its chunks keep any
  std::optional<Step> state_step;    // of the checkpoint that it is from; none: it is zero
  std::string state_problem;         // why it is zero although there was a checkpoint
};

using FromMember = std::variant<RegisterServer,
                                RegisterWorker,
                                RegisterTensors,
                                TensorsInstalled,
                                ViewAnswer,
                                Promises,
                                MemberCaughtUp,
                                HandedOver,
                                StepsHeld,
                                Heartbeat,
                                Leave,
                                AskToLeave,
                                Failure,
                                Captured,
                                Restored,
                                ServerReport,
                                WorkerReport,
                                ShardCopies,
                                Rebuilt>;

// What `pushpull set` asks for; what is not given stays as it is.
struct ModeChange {
  std::optional<ConsistencyMode> mode;
  std::optional<uint32_t> staleness;
  std::optional<uint32_t> backup_workers;
  std::optional<bool> gated = {};
};

// ---- coordinator -> member ----

struct ServerEndpoint {
  ServerId server;
  Incarnation incarnation;
  std::string data_address;
  uint32_t lanes = 1;
};

// The first message of every session that was accepted.
struct Welcome {
  Term term;
  JobSettings settings;
  uint32_t heartbeat_milliseconds = 1000;
};

// To every server: tensors new since the last one. table_version is the number of tensors then
// known.
struct InstallTensors {
  uint64_t table_version = 0;
  std::vector<PlacedTensor> tensors;
};

// Replica-set entries, to servers and workers. Only entries of a higher epoch change anything.
// Servers answer with Promises.
struct SetReplicas {
  std::vector<std::pair<ShardId, ReplicaSet>> entries;
  // The shards' very first entries: there is no state yet that a member could lack.
  bool are_first = false;
};

// To the primary of a shard whose entry in force has the epoch `current`: stop, let the primary of
// `next` have everything, and make it reign under `next`.
struct Handover {
  ShardId shard;
  Epoch current;
  ReplicaSet next;
};

struct SetServers {
  std::vector<ServerEndpoint> servers;
  WantedSize wanted;
};

struct ProposeView {
  View view;
};

struct ActivateView {
  View view;
};

// To a worker, before the mode changes: begin no step that has not begun, but those below `until`.
// What the program pushes meanwhile waits. Ended by the view that changes the mode, or by
// ResumeSteps.
struct HoldSteps {
  uint64_t round = 0;
  std::optional<Step> until;  // none: the worker's own next step
};

// The mode does not change after all.
struct ResumeSteps {
  uint64_t round = 0;
};

// To a worker, the answer to RegisterTensors. It contributes from `start_step` on; `is_fresh` says
// that there may be no values yet: it brings its own, which count where there are none.
struct TensorsRegistered {
  std::vector<PlacedTensor> tensors;
  Step start_step;
  bool is_fresh = true;
};

// To a worker: whether the job goes on without it. A worker that is released takes no further step
// and leaves; one that has not done so yet may be kept after all.
struct Release {
  bool is_released = true;
};

// To every worker, where codecs leave something out: push the step before `step` whole. To every
// server: write every chunk over which you reign to the folder of `step` in `folder`,
// which all servers see under this path. Replaces an earlier attempt.
struct Capture {
  uint64_t attempt = 0;  // another one at every try
  Step step;
  // kOfOneStep: as it is when it has reached version `step`, before that step is applied.
  // kOfEachChunk: as it is now.
  ChunkVersions versions = ChunkVersions::kOfOneStep;
  bool is_last = false;  // no step will be done any more: refuse what is not at `step` now
  std::string folder;
};

// The attempt is over, successful or not: nothing more is captured for it, and what is not written
// is dropped.
struct EndCapture {
  uint64_t attempt = 0;
};

// To every server, before the first SetReplicas: take the chunks of these shards from a checkpoint.
struct Restore {
  std::string folder;     // the checkpoint's own
  uint64_t sequence = 0;  // of its manifest
  std::vector<ShardId> shards;
  // A job in steps that begins from chunks of different versions: all get this one.
  std::optional<Step> version = {};
};

// The session or the whole job ends. OK: in order, at the end. Anything else: why. Void where the
// term is below the one promised.
struct Stop {
  absl::Status status;
  Term term;
};

// A coordinator that has just started asks for everything that the member knows.
struct Collect {
  Term term;
};

// To a worker of the view: take these entries, which have no primary, and say what you have of the
// shards.
struct CollectCopies {
  uint64_t round = 0;
  std::vector<std::pair<ShardId, ReplicaSet>> entries;
};

// To a worker: send what it has of these chunks to the primary of `entry`, which nobody else knows
// yet, until an entry of that epoch or a higher one is in force.
struct OfferCopies {
  ShardId shard;
  ReplicaSet entry;
  std::vector<ChunkId> chunks;
};

// Where the value of a chunk comes from, of whose shard nobody is left.
struct RebuiltChunk {
  enum class Source : uint8_t {
    kNew = 0,         // there was none yet: the workers bring their own
    kWorker = 1,      // a worker's copy, with this checksum
    kCheckpoint = 2,  // `version` is the least that it counts as
  };
  ChunkId chunk;
  Source source = Source::kNew;
  Step version;
  uint64_t checksum = 0;
  friend bool operator==(const RebuiltChunk&, const RebuiltChunk&) = default;
};

// To the server that `entry` names as primary, alone: begin to reign when all chunks are here.
// Replaces an earlier order. Answered by Rebuilt.
struct RebuildShard {
  ShardId shard;
  ReplicaSet entry;
  std::vector<RebuiltChunk> chunks;  // all of the shard, by id
  std::string checkpoints;           // the folder of all; empty where the job has none yet
};

using ToMember = std::variant<Welcome,
                              InstallTensors,
                              SetReplicas,
                              Handover,
                              SetServers,
                              ProposeView,
                              ActivateView,
                              HoldSteps,
                              ResumeSteps,
                              TensorsRegistered,
                              Release,
                              Stop,
                              Capture,
                              EndCapture,
                              Restore,
                              Collect,
                              CollectCopies,
                              OfferCopies,
                              RebuildShard>;

}  // namespace pushpull
