// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's status of the job, for `pushpull status`, the operator, and the launcher's
// progress and report. Plain data; proto/pushpull/v1/control.proto has the wire form.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "runtime/base/ids.h"
#include "runtime/base/quantiles.h"
#include "runtime/membership/control.h"

namespace pushpull {

struct ServerStatus {
  ServerId server;
  bool is_alive = false;
  std::string data_address;
  std::string metrics_address;
  uint64_t pid = 0;
  ServerStats stats;
  double step_seconds = 0;  // per step with a gradient in it, recently; 0: unknown
  std::string rack;         // empty: not known
};

struct WorkerStatus {
  WorkerId worker;
  bool is_alive = false;
  bool is_member = false;     // contributes to steps
  bool has_left = false;      // exited in order, its part done
  bool was_released = false;  // exited in order because of a scale-down
  std::string metrics_address;
  uint64_t pid = 0;
  Step step;
  double joined_seconds = 0;  // since its latest process registered
  WorkerActivity activity;
  double lateness_seconds = 0;  // by which its own part of a step exceeds the others'
  std::string rack;             // empty: not known
  uint64_t steps_made = 0;      // by its latest process, even if that has ended
  // Why the job goes on without it: no process is started for it. Empty: it takes part.
  std::string left_out = {};
};

// "member", "joining", "done", "released", "left out", "gone".
absl::string_view StateOf(const WorkerStatus& worker);

// What has recently held up the others (coordinator/culprit_watch.h).
enum class CulpritKind : uint8_t {
  kWorker = 0,  // its own part of a step takes longer than the others'
  kServer = 1,  // gradients stay in it longer than in the others
  kLink = 2,    // of a worker, of a server, or between the two given
};

struct Culprit {
  CulpritKind kind = CulpritKind::kWorker;
  std::optional<WorkerId> worker;
  std::optional<ServerId> server;
  double seconds = 0;  // that it costs per step
  double share = 0;    // of a step, 0 to 1
  friend bool operator==(const Culprit&, const Culprit&) = default;
};

// "worker", "server", "link".
absl::string_view NameOf(CulpritKind kind);
// "worker-3", "server-1", "worker-3/server-1".
std::string MemberOf(const Culprit& culprit);
// "worker-3", "link of worker-3".
std::string WhoOf(const Culprit& culprit);
// "link of worker-3 holds the others up for 42.0 ms of each step (31 %)".
std::string ToString(const Culprit& culprit);

// "computing for 12.3 s, step 20, last pushed tensor "b"".
std::string ToString(const WorkerActivity& activity);

// One change in the number of servers while the job runs.
struct ResizeStatus {
  Step step;  // when it was requested
  uint32_t from = 0;
  uint32_t to = 0;
  bool is_settled = false;   // the servers are present and every shard is in its place
  bool is_final = false;     // settled, and every member's statistics have arrived
  double seconds = 0;        // until settled, or so far
  double pause_seconds = 0;  // longest synchronization of a step on any worker meanwhile
  uint64_t moved_bytes = 0;  // values and optimizer state copied to other servers
};

// The rack of a server or worker, as known to the launcher or the operator.
struct MemberRack {
  bool is_server = false;
  uint32_t index = 0;
  std::string rack;
  friend bool operator==(const MemberRack&, const MemberRack&) = default;
};

// A worker without which the job goes on, by decision of the launcher or the operator; or, without
// a reason, one that is done: it has told a coordinator that is gone.
struct LeftOutWorker {
  WorkerId worker;
  std::string why;
  friend bool operator==(const LeftOutWorker&, const LeftOutWorker&) = default;
};

// A requested size of the job or of its steps; a field without a value keeps the current one. Also
// the racks of members that do not know their own; a member that is not named keeps its rack.
struct JobSize {
  static constexpr size_t kRacksMax = 8192;

  std::optional<uint32_t> servers;
  std::optional<uint32_t> workers;
  std::optional<uint64_t> global_batch = {};  // samples per step over all workers
  std::vector<MemberRack> racks = {};
  // Count as done from now on, until a process of them registers or the job becomes smaller.
  std::vector<LeftOutWorker> left_out = {};
  friend bool operator==(const JobSize&, const JobSize&) = default;
};

// The checkpoints of a running job. Saves are numbered by request, including the coordinator's own:
// save n is over when `finished` >= n.
struct CheckpointStatus {
  Step step;                          // of this coordinator's last complete one; 0: none yet
  uint64_t saved = 0;                 // number of complete checkpoints
  uint64_t failures = 0;              // number of abandoned saves
  std::string failure;                // why the last of these failed
  uint64_t requested = 0;             // last request
  uint64_t finished = 0;              // last save that is over
  uint64_t succeeded = 0;             // last save with a complete checkpoint
  double seconds = 0;                 // that save's time from its request
  std::optional<Step> restored_step;  // of the checkpoint that the job started from
  // Why nothing can be saved at present, with the path; empty: the last save succeeded, or there
  // was none yet and the folder is writable.
  std::string problem;
};

// Shards that lost their last replica, and where their values were recovered from. One per loss.
struct StateLoss {
  std::vector<ServerId> servers;  // their last holders
  std::vector<ShardId> shards;
  uint64_t chunks = 0;
  bool is_waiting = false;   // for the last holder: nothing is lost if it returns in time
  bool is_repaired = false;  // every shard has a primary again
  uint64_t returned = 0;     // shards whose holder returned with everything
  Step lowest_version;       // of the recovered chunks
  Step highest_version;
  uint64_t from_workers = 0;         // chunks recovered from workers' copies
  uint64_t from_checkpoint = 0;      // from a checkpoint
  uint64_t reinitialized = 0;        // chunks that had no value yet
  uint64_t outdated = 0;             // chunks recovered at an older version: their updates are lost
  bool has_optimizer_state = false;  // some of their optimizers have
  std::optional<Step> state_step;    // of the oldest checkpoint it was loaded from; none: zeros
  double seconds = 0;                // without a primary
  friend bool operator==(const StateLoss&, const StateLoss&) = default;
};

// One human-readable line: what was lost, and where it was recovered from.
std::string ToString(const StateLoss& loss);

// "step 12 waits for worker-1: no gradient of tensor "w" for 10.3 s", and, if known, which workers
// wait and what the missing ones are doing.
std::string ToString(const Stall& stall);
// The beginning of that, without times: "step 12 waits for worker-1: no gradient of tensor "w"".
std::string HeadlineOf(const Stall& stall);
// What the missing workers have not done: "no gradient of tensor "w"".
std::string MissingIn(const Stall& stall);

struct JobStatus {
  static constexpr size_t kLossesMax = 4096;      // beyond this, thinned out by step
  static constexpr size_t kResizesMax = 256;      // the newest are kept
  static constexpr size_t kStateLossesMax = 256;  // the first ones are kept
  static constexpr size_t kUnevenStepsMax = 256;  // the newest are kept
  static constexpr size_t kCulpritsMax = 8;       // the most costly are kept

  std::string job;
  JobPhase phase = JobPhase::kStarting;
  std::string failure;  // why the job failed, one line; empty otherwise
  // Exit code of `pushpull run` for this failure; 0: the default, 1.
  uint32_t failure_exit_code = 0;
  // The job failed because this server was lost with the only copy of its shards. The rules of
  // spec.restart decide about that; `can_resume`: from a checkpoint, if none of them matches.
  std::optional<ServerId> lost_server;
  bool can_resume = false;
  double failed_seconds = 0;  // since the failure
  Term term;
  Epoch epoch;  // highest in force
  uint64_t view = 0;
  uint32_t desired_servers = 0;  // indices 0 to desired_servers - 1
  uint32_t desired_workers = 0;  // likewise
  // Samples of a full step over all workers, as the servers divide them; 0: the job divides none,
  // or no server has reported yet.
  uint64_t batch = 0;
  uint64_t global_batch = 0;        // spec.workers.globalBatch, or its later replacement; 0: unset
  double noise_scale = 0;           // of gradients, in samples; 0: unknown or not measured
  uint64_t shards_moving = 0;       // not yet placed as desired size and replication require
  uint64_t shards_in_one_rack = 0;  // with followers, all of them in the primary's rack
  Step step;                        // steps that every member has finished
  // Of all workers together, since the job began or was resumed; 0: it has made none.
  uint64_t steps_made = 0;
  uint64_t samples = 0;
  double seconds = 0;  // since the first view was activated
  uint64_t bytes_pushed = 0;
  uint64_t bytes_pulled = 0;
  uint64_t bytes_replicated = 0;
  uint64_t resends = 0;
  uint32_t contributors_min = 0;
  uint32_t contributors_max = 0;
  uint64_t uneven_steps = 0;              // their chunks had different sets of contributors
  std::vector<Step> newest_uneven_steps;  // ascending
  Quantiles sync_seconds;
  std::array<Quantiles, kSyncPhaseCount> phase_seconds;
  std::vector<LossPoint> losses;          // mean over the workers, weighted by samples
  std::map<std::string, double> results;  // mean over the workers' programs
  std::vector<ServerStatus> servers;
  std::vector<WorkerStatus> workers;
  CheckpointStatus checkpoint;
  // The step at which training last began under this coordinator, for all members together: 0, or
  // that of a checkpoint. None: it has not, or continued what was under way.
  std::optional<Step> began_step;
  Step step_before;                     // that the job had reached before, as far as known
  uint64_t steps_lost = 0;              // made before and not saved, under this coordinator
  Consistency consistency;              // the mode in force
  bool is_mode_changing = false;        // another one has been requested
  std::string mode_problem;             // why the last change failed; empty: it did not
  std::optional<Stall> stall;           // set while a step waits for workers beyond the stall time
  std::vector<Culprit> culprits;        // most costly first
  std::vector<ResizeStatus> resizes;    // in order of request
  std::vector<StateLoss> state_losses;  // in order of time

  // Some worker has made a step since the job began or was resumed. Reports of that are up to a
  // second old; a server's may come before the worker's.
  bool has_stepped() const;
  // A new batch has been set, but no server has divided a step by it yet.
  bool is_batch_changing() const { return global_batch > 0 && batch > 0 && batch != global_batch; }
};

}  // namespace pushpull
