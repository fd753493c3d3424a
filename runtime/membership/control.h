// SPDX-License-Identifier: Apache-2.0
//
// Control messages between the coordinator and the members (servers and workers) of a job, as plain
// structs. Each member has one session: an ordered, two-way stream. The wire form is
// proto/pushpull/v1/control.proto; control_proto.cc converts and lists the fields of each struct. C
// is the coordinator, ==> the data channel:
//
//   start         member --RegisterServer | RegisterWorker--> C --Welcome--> member
//   tensors       worker --RegisterTensors--> C --InstallTensors--> servers --TensorsInstalled--> C
//                 --ProposeView--> servers --ViewAnswer--> C --ActivateView--> all,
//                 C --TensorsRegistered--> worker
//   replica sets  C --SetReplicas--> all; servers --Promises--> C; primary --CaughtUp--> C
//                 C --Handover--> old primary ==> new primary --HandedOver--> C
//   drain         server --DrainRequest--> C, replica sets as above, C --Stop--> server
//   lost shard    C --SetReplicas (no primary)--> all, C --CollectCopies--> workers
//                 --ShardCopies--> C --RebuildShard--> new primary, C --OfferCopies--> workers
//                 ==> new primary --Rebuilt--> C --SetReplicas--> all
//   checkpoint    C --Capture--> servers --Captured--> C --EndCapture--> servers
//                 (mode AllReduce: workers instead of servers)
//   restore       C --Restore--> servers --Restored--> C --SetReplicas (first)--> all
//   trace         C --TraceSteps--> workers --TraceReport--> C
//   groups        C --SetGroup--> workers
//   waits         servers, workers --Heartbeat--> C --StepWaits--> workers that wait
//   ring          C --StopRing--> workers --RingStopped--> C --FormRing--> workers --RingNews--> C
//   coordinator   member --RegisterServer | RegisterWorker (promised term)--> C
//   restarted     --Welcome, Collect--> member --ServerReport | WorkerReport--> C
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

#include "pushpull/deadline.h"

#include "runtime/base/ids.h"
#include "runtime/base/quantiles.h"
#include "runtime/checkpoint/chunk_file.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/consistency/view.h"
#include "runtime/consistency/worker_group.h"
#include "runtime/job/training_job.h"
#include "runtime/membership/trace_report.h"
#include "runtime/metrics/sync_phase.h"
#include "runtime/shard/shard_map.h"
#include "runtime/store/placed_tensor.h"

namespace pushpull {

// The part of the manifest that the members need.
struct JobSettings {
  std::string job;
  uint32_t workers = 1;  // spec.workers.replicas
  uint32_t servers = 1;
  uint32_t replication = 0;  // followers per shard
  // spec.workers.globalBatch at the start of the job; 0: each worker has its own batch.
  uint64_t global_batch = 0;
  bool deterministic = false;
  bool noise_scale = false;  // spec.sync.noiseScale
  NonFinitePolicy non_finite = NonFinitePolicy::kFail;
  bool scale_by_staleness = false;
  Duration stall = std::chrono::seconds(10);  // spec.sync.stallSeconds
  // Shards have no followers, so the workers' copies are the only ones besides the server's: a
  // worker drops a value only once it holds the next one completely.
  bool keeps_copies = false;
  // How long a member that has lost its coordinator waits for the next one before it fails.
  Duration coordinator_timeout = std::chrono::seconds(60);
};

// ---- member -> coordinator ----

struct RegisterServer {
  ServerId server;
  Incarnation incarnation;
  std::string data_address;  // for the data channel: [grpc://]host:port
  std::string metrics_address;
  uint32_t lanes = 1;
  double weight = 1;  // share of the parameters relative to other servers
  uint64_t pid = 0;
  Term promised;     // highest term of a Welcome that this process accepted; 0 before the first
  std::string rack;  // of its host; empty: unknown
};

struct RegisterWorker {
  WorkerId worker;
  Incarnation incarnation;
  std::string metrics_address;
  uint64_t pid = 0;
  Term promised;           // as in RegisterServer
  bool is_member = false;  // this incarnation has received TensorsRegistered
  // Where other workers reach it in mode AllReduce: host:port, with a numeric host. Otherwise
  // empty.
  std::string ring_address;
  std::string rack;  // as in RegisterServer
  // Where the other workers of its group reach it (GroupMember::address); empty: it pushes alone.
  std::string group_address;
  std::string node;  // the host, by which groups are formed; the same for all on one machine
};

// The desired size of the job and of its steps, as last announced by the coordinator; a higher
// revision is newer.
struct DesiredSize {
  uint64_t revision = 0;  // 0: never announced
  uint32_t servers = 0;   // indices 0 to servers - 1
  uint32_t workers = 0;   // likewise
  // Samples per step over all workers; 0: the batch stays as it is.
  uint64_t global_batch = 0;
};

// All tensors of the worker. Answered by TensorsRegistered once every server has installed them and
// the worker is a member of an active view.
struct RegisterTensors {
  std::vector<TensorSpec> tensors;
};

// A server has installed all tensors up to this table version.
struct TensorsInstalled {
  uint64_t table_version = 0;
};

// A server's answer to ProposeView. `lowest_free_step` is above every completed step and every step
// that has a contribution: a joining worker may start there.
struct ViewAnswer {
  uint64_t number = 0;
  bool is_accepted = false;
  Step lowest_free_step;
};

// A server's state of a shard: its answer to each entry of SetReplicas that names it. From then on
// the server rejects everything from an epoch below entry.epoch.
struct Promise {
  ShardId shard;
  ReplicaSet entry;      // in force on the server: that of SetReplicas or a higher one
  uint64_t seq = 0;      // of the last log entry it has applied
  bool is_full = false;  // it holds everything ever published
};

struct Promises {
  std::vector<Promise> promises;
};

// The primary reports that `member` holds everything published, and that nothing will be published
// without it while `epoch` is in force.
struct CaughtUp {
  ShardId shard;
  Epoch epoch;
  ServerId member;
};

// After a Handover, the new primary reports that it serves the shard under `entry`.
struct HandedOver {
  ShardId shard;
  ReplicaSet entry;
};

// The worker answers HoldSteps twice: at once with the first step it will not begin, and with
// `is_drained` when all steps below `until` are done.
struct StepsHeld {
  uint64_t round = 0;
  Step next_step;  // its pushes of all steps below have begun
  bool is_drained = false;
};

struct LossPoint {
  Step step;
  double loss = 0;
  uint64_t samples = 0;
};

// What a worker's program is doing, as far as its library can tell.
enum class WorkerPhase : uint8_t {
  kJoining = 0,       // registers its tensors, or receives their values
  kComputing = 1,     // not all gradients of its step are ready
  kWaiting = 2,       // its gradients are pushed, and not all new values are back
  kPulling = 3,       // a pull on its own
  kInCollective = 4,  // a barrier, or another collective
  kChangingMode = 5,  // steps are held while the mode changes
  kLeaving = 6,       // has announced its last step
};

struct WorkerActivity {
  static constexpr size_t kServersMax = 8;

  WorkerPhase phase = WorkerPhase::kJoining;
  double seconds = 0;   // since it began
  Step step;            // of the newest push, as the program counts
  std::string subject;  // the tensor that was pushed last, or the collective; may be empty
  std::vector<ServerId> servers;  // kWaiting, kPulling: have not answered; the first ones
  std::optional<WorkerId> peer;   // kInCollective, a message: the other end
  friend bool operator==(const WorkerActivity&, const WorkerActivity&) = default;
};

// What one worker's steps have cost at one server and on the link to it, since the worker's start.
// Time in which several chunks are under way counts once.
struct LinkCosts {
  ServerId server;
  uint64_t bytes = 0;         // gradients sent and values received
  double link_seconds = 0;    // with a gradient or a value in transit
  double server_seconds = 0;  // adding and applying, and with a gradient queued
  friend bool operator==(const LinkCosts&, const LinkCosts&) = default;
};

// Where the time of a worker's steps went, since its start, along the path of the last chunk.
struct StepCosts {
  uint64_t steps = 0;
  double step_seconds = 0;
  double own_seconds = 0;   // neither on a link nor in a server: computing, reduce, encode, apply
  double wait_seconds = 0;  // in a server, for other workers
  std::vector<LinkCosts> links;  // by server, ascending
  friend bool operator==(const StepCosts&, const StepCosts&) = default;
};

// Cumulative since the worker's start, except for `losses` (those since the last heartbeat) and
// `activity` (the current one).
struct WorkerStats {
  static constexpr size_t kUnevenStepsMax = 64;  // the newest are kept
  static constexpr size_t kResultsMax = 1024;
  static constexpr size_t kResultNameBytesMax = 300;

  Step step;  // number of steps whose pulls are complete
  uint64_t steps_made = 0;
  uint64_t samples = 0;
  uint64_t bytes_pushed = 0;
  uint64_t bytes_pulled = 0;
  uint64_t resends = 0;
  Quantiles sync_seconds;
  std::array<Quantiles, kSyncPhaseCount> phase_seconds;
  std::vector<LossPoint> losses;
  // The number of losses so far, including the last of these: tells which are repeated.
  uint64_t losses_end = 0;
  std::map<std::string, double> results;  // reported by the program at its end: accuracy, ...
  // Steps whose chunks had different sets of contributors, by the digests in the push answers.
  std::vector<Step> uneven_steps;
  StepCosts costs;
  WorkerActivity activity;
  // Mode AllReduce: as ServerStats::batch.
  uint64_t batch = 0;
  bool is_ending = false;  // its process was told to end: it leaves after this step
};

// A step, or a collective in it, that some workers wait for and others have not contributed to.
// Servers report those that have waited for a second, or for JobSettings::stall if that is less;
// the coordinator merges their reports, and shows what lasts longer than JobSettings::stall.
struct Stall {
  static constexpr Duration kReportedAfter = std::chrono::seconds(1);

  Step step;
  std::string tensor;             // one that is incomplete; empty: not known, or a collective
  std::vector<WorkerId> missing;  // their contributions have not arrived
  double seconds = 0;             // since the first contribution
  std::vector<WorkerId> waiting;  // their contributions have
  std::string detail;             // what the missing workers are doing; set by the coordinator
  std::string collective = {};    // that the workers wait in; set by the coordinator
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
  uint64_t bytes_copied = 0;      // values and optimizer state received for shards moved here
  std::optional<Stall> stall;     // the longest
  double busy_seconds = 0;        // of an average lane, since the start; waiting does not count
  // Samples of a full step over all workers if this server divides the job's samples, otherwise 0.
  uint64_t batch = 0;
  // Sums over its chunks of averages over the steps so far (store/gradient_noise.h); 0 if not
  // measured.
  double gradient_squares = 0;
  double gradient_variance = 0;
};

// Sent every second; a member silent for spec.restart.peerTimeoutSeconds is considered lost.
struct Heartbeat {
  std::variant<ServerStats, WorkerStats> stats;
};

// The worker contributes to no step from `end_step` on and exits.
struct Leave {
  Step end_step;
  WorkerStats stats;
  bool is_released = false;  // because of Release; false: it has finished its part
};

// Answers to the Collect of this term: everything that only the members know after the coordinator
// has restarted.
struct ServerReport {
  Term term;
  std::vector<PlacedTensor> tensors;                    // installed; empty before InstallTensors
  std::vector<std::pair<ShardId, ReplicaSet>> entries;  // of all shards, its own or not
  std::vector<Promise> promises;                        // for shards whose replica set has it
  View active;
  std::optional<View> proposed;
  DesiredSize desired;
};

struct WorkerReport {
  Term term;
  std::vector<std::pair<ShardId, ReplicaSet>> entries;
  Step step;  // it holds this version of every chunk
  DesiredSize desired;
};

// A server whose process has to end (SIGTERM) asks to be drained: its shards move to other servers
// while the desired size stays the same. Repeated in each session. Answered by Stop once it holds
// nothing.
struct DrainRequest {};

// The member cannot continue; the job fails with this text, which names peer, tensor and step.
struct Failure {
  absl::Status status;
};

// The member's part of a checkpoint is done or has failed.
//
// A worker: its pushes of the step before the checkpoint carried all residuals of its codecs
// (kAborted: they did not).
//
// A server: every chunk of which it is primary is captured in these files. Sent again, with the
// additional files, if shards arrive during the capture. A server keeps nothing of an attempt whose
// status is not OK:
//
//   kAborted             a chunk is past the step; retry with a step >= `highest_version`.
//   kFailedPrecondition  with is_last: a chunk has not reached the step, and never will.
//   others               the files cannot be written. Abandon this save.
struct Captured {
  uint64_t attempt = 0;
  absl::Status status;
  Step highest_version;  // with kAborted: of its chunks
  std::vector<ChunkFileSummary> files;
};

// The chunks of the shards in Restore are loaded, or why they are not; kDataLoss names file and
// offset. In mode AllReduce: why FormRing::restore_from cannot be read.
struct Restored {
  absl::Status status;
};

// A worker's copy of a chunk.
struct ChunkCopy {
  enum class Kind : uint8_t {
    kNone = 0,      // nothing usable
    kComplete = 1,  // the complete value of `version`
    kInitial = 2,   // its own initial value, not yet acknowledged
  };
  ChunkId chunk;
  Kind kind = Kind::kNone;
  Step version;
  Step known;             // highest version it knows to exist
  uint64_t checksum = 0;  // XXH3-64 of the value
  friend bool operator==(const ChunkCopy&, const ChunkCopy&) = default;
};

// A worker's answer to CollectCopies: one per shard, with all its chunks. From then on the worker
// rejects everything published under an epoch below the entry's.
struct ShardCopies {
  uint64_t round = 0;
  ShardId shard;
  std::vector<ChunkCopy> chunks;
};

// A server's answer to RebuildShard: it is primary under `entry`, or why it cannot be.
struct Rebuilt {
  ShardId shard;
  ReplicaSet entry;
  absl::Status status;
  bool has_optimizer_state = false;  // the optimizers of its chunks have state
  std::optional<Step> state_step;    // of the checkpoint it was loaded from; none: zeros
  std::string state_problem;         // why the state is zeros although there is a checkpoint
};

// Which values a worker of a ring has: those after `step` steps, the last of which was taken in the
// ring of `made_in`. Equal marks mean equal bits. A ring continues from its members' highest mark,
// so of two marks with different epochs, the job has continued from the higher one.
struct RingMark {
  Epoch made_in;
  Step step;
  friend auto operator<=>(const RingMark&, const RingMark&) = default;
};

// A worker's answer to StopRing: it takes no further step before FormRing.
struct RingStopped {
  Epoch epoch;
  std::optional<RingMark> mark;  // none: it has no values of the job yet
};

// A worker is connected to all others in the ring and has the values, or why the ring has failed.
struct RingNews {
  Epoch epoch;
  absl::Status status;
};

using FromMember = std::variant<RegisterServer,
                                RegisterWorker,
                                RegisterTensors,
                                TensorsInstalled,
                                ViewAnswer,
                                Promises,
                                CaughtUp,
                                HandedOver,
                                StepsHeld,
                                Heartbeat,
                                Leave,
                                DrainRequest,
                                Failure,
                                Captured,
                                Restored,
                                ServerReport,
                                WorkerReport,
                                ShardCopies,
                                Rebuilt,
                                TraceReport,
                                RingStopped,
                                RingNews>;

// A request of `pushpull set`; fields without a value keep the current setting.
struct ModeChange {
  std::optional<SyncMode> mode;
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

// The first message of every accepted session.
struct Welcome {
  Term term;
  JobSettings settings;
  uint32_t heartbeat_milliseconds = 1000;
};

// To every server: the tensors added since the last such message. `table_version` is the total
// number of tensors.
struct InstallTensors {
  uint64_t table_version = 0;
  std::vector<PlacedTensor> tensors;
};

// To servers and workers: replica sets. Receivers ignore entries that do not raise the shard's
// epoch; servers answer with Promises.
struct SetReplicas {
  std::vector<std::pair<ShardId, ReplicaSet>> entries;
  // The first entries of these shards: there is no state yet that a member could lack.
  bool are_first = false;
};

// To the primary of a shard under epoch `current`: stop serving, transfer everything to the primary
// of `next`, and let it take over under `next`.
struct Handover {
  ShardId shard;
  Epoch current;
  ReplicaSet next;
};

struct SetServers {
  std::vector<ServerEndpoint> servers;
  DesiredSize desired;
};

struct ProposeView {
  View view;
};

struct ActivateView {
  View view;
};

// To a worker, before the mode changes: begin no new step, except for those below `until`. The
// program's pushes wait meanwhile. Ended by the view that changes the mode, or by ResumeSteps.
struct HoldSteps {
  uint64_t round = 0;
  std::optional<Step> until;  // none: the worker's own next step
};

// To a worker: the mode change was cancelled.
struct ResumeSteps {
  uint64_t round = 0;
};

// To a worker, the answer to RegisterTensors: it contributes from `start_step` on. `is_fresh`:
// there may be no values yet, so the worker sends its initial ones, which count if there are none.
struct TensorsRegistered {
  std::vector<PlacedTensor> tensors;
  Step start_step;
  bool is_fresh = true;
};

// To a worker: released by a scale-down, it begins no further step and leaves. False revokes the
// release, if the worker has not left yet.
struct Release {
  bool is_released = true;
};

// To every worker with residuals of lossy codecs: push the step before `step` with all residuals.
// To every server: write every chunk of which it is primary to the folder of `step` in `folder`, a
// path that all servers share. Replaces an earlier attempt.
struct Capture {
  uint64_t attempt = 0;  // unique per attempt
  Step step;
  // kOfOneStep: each chunk at version `step`, before that step is applied.
  // kOfEachChunk: each chunk at its current version.
  ChunkVersions versions = ChunkVersions::kOfOneStep;
  bool is_last = false;  // the job has taken its last step: fail if a chunk is not at `step` now
  std::string folder;
  // Mode AllReduce: a worker writes the chunks whose number, divided by `parts`, leaves `part`; 0
  // of 0 in other modes.
  uint32_t part = 0;
  uint32_t parts = 0;
};

// The attempt is over, successful or not: stop capturing and drop what is not yet written.
struct EndCapture {
  uint64_t attempt = 0;
};

// To every server, before the first SetReplicas: load the chunks of these shards from a checkpoint.
struct Restore {
  std::string folder;     // the checkpoint's own
  uint64_t sequence = 0;  // of its manifest
  std::vector<ShardId> shards;
  // Overrides the chunks' versions, for a synchronous job that starts from chunks at different
  // ones.
  std::optional<Step> version = {};
  // Only values, as the initial ones of a job; of those tensors that the checkpoint has.
  bool values_only = false;
};

// The session or the job ends: OK after success, otherwise why. Ignored if the term is below the
// promised one.
struct Stop {
  absl::Status status;
  Term term;
};

// A restarted coordinator asks for the member's whole state.
struct Collect {
  Term term;
};

// To a worker of the view: apply these entries, which have no primary, and report the copies of
// these shards.
struct CollectCopies {
  uint64_t round = 0;
  std::vector<std::pair<ShardId, ReplicaSet>> entries;
};

// To a worker: send its copies of these chunks to the primary of `entry`, which other members do
// not have yet, until an entry of that or a higher epoch is in force.
struct OfferCopies {
  ShardId shard;
  ReplicaSet entry;
  std::vector<ChunkId> chunks;
};

// The source of a chunk's value when no replica of its shard is left.
struct RebuiltChunk {
  enum class Source : uint8_t {
    kNew = 0,         // the chunk had none yet: the workers send their initial ones
    kWorker = 1,      // a worker's copy, with this checksum
    kCheckpoint = 2,  // counts as at least `version`
  };
  ChunkId chunk;
  Source source = Source::kNew;
  Step version;
  uint64_t checksum = 0;
  friend bool operator==(const RebuiltChunk&, const RebuiltChunk&) = default;
};

// Only to the primary of `entry`: become primary once all chunks have arrived. Replaces an earlier
// order. Answered by Rebuilt.
struct RebuildShard {
  ShardId shard;
  ReplicaSet entry;
  std::vector<RebuiltChunk> chunks;  // all of the shard, by id
  std::string checkpoint;            // the folder of the job's newest one; empty: none yet
};

// To a worker: record its next steps, dropping an earlier trace, and send them as TraceReports.
struct TraceSteps {
  uint64_t number = 0;  // of the trace
  uint32_t steps = 0;
  uint32_t pushes_max = 0;  // further ones are only counted
  Duration within{0};       // after which it sends what it has
};

// To a worker in mode AllReduce: abort the step under way, keep its gradient, and answer with
// RingStopped. A higher epoch replaces a lower one.
struct StopRing {
  Epoch epoch;
};

// A worker of a ring; its position in the list is its rank.
struct RingWorker {
  WorkerId worker;
  std::string address;    // RegisterWorker::ring_address
  std::string rack = {};  // RegisterWorker::rack
  friend bool operator==(const RingWorker&, const RingWorker&) = default;
};

// To every worker that has stopped for `epoch` and continues: connect to the others, take the
// values of rank `source` if `copies`, and repeat the step. Answered by RingNews.
struct FormRing {
  Epoch epoch;
  std::vector<RingWorker> workers;
  std::array<uint64_t, 2> token{};  // by which the workers of this ring recognize each other
  uint32_t source = 0;              // a rank with `mark`
  RingMark mark;                    // the mark of all afterwards
  bool copies = false;              // some worker lacks the values
  bool is_fresh = false;            // no worker has any: the initial ones of `source` count
  // The folder of the checkpoint that counts in place of initial values; empty: none.
  std::string restore_from = {};
  bool values_only = false;  // as in Restore
};

// To a worker: those with which it sums its gradients before they are pushed, itself included; in
// the order of their index. Fewer than two: it pushes alone. Each SetGroup replaces the one before;
// nothing depends on all members having the same one.
struct SetGroup {
  std::vector<GroupMember> members;
};

// To a worker that waits for others: for whom, for the errors of its waits. Each StepWaits replaces
// the one before; `missing` empty: it waits for nobody.
struct StepWaits {
  std::vector<WorkerId> missing;
  std::string what;          // MissingIn
  std::optional<Step> step;  // whose gradients are missing; empty: a collective, or AllReduce
  friend bool operator==(const StepWaits&, const StepWaits&) = default;
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
                              RebuildShard,
                              TraceSteps,
                              StopRing,
                              FormRing,
                              SetGroup,
                              StepWaits>;

}  // namespace pushpull
