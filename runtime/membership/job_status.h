// SPDX-License-Identifier: Apache-2.0
//
// What the coordinator knows of the job, for `pushpull status`, the launcher's progress and its
// report. Plain data; proto/pushpull/v1/control.proto has the wire form.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/quantiles.h"
#include "runtime/membership/control.h"

namespace pushpull {

// kRecovering: the coordinator was started anew and is still hearing what the members know; nothing
// else in the status is complete then.
enum class JobPhase : uint8_t { kStarting = 1, kRunning, kSucceeded, kFailed, kRecovering };

struct ServerStatus {
  ServerId server;
  bool is_alive = false;
  std::string data_address;
  std::string metrics_address;
  uint64_t pid = 0;
  ServerStats stats;
};

struct WorkerStatus {
  WorkerId worker;
  bool is_alive = false;
  bool is_member = false;     // contributes to steps
  bool has_left = false;      // ended in order, its part done
  bool was_released = false;  // ended in order because it was not wanted any more
  std::string metrics_address;
  uint64_t pid = 0;
  Step step;
};

// One change of the number of servers while the job runs.
struct ResizeStatus {
  Step step;  // when it was asked for
  uint32_t from = 0;
  uint32_t to = 0;
  bool is_settled = false;   // the servers are there and every shard is in its place
  bool is_final = false;     // settled, and every member has told what it saw of it
  double seconds = 0;        // until then; so far where it is not
  double pause_seconds = 0;  // the longest synchronisation of a step that a worker saw meanwhile
  uint64_t moved_bytes = 0;  // values and optimizer state copied to other servers
};

// How many members a job shall have; what is not given stays.
struct JobSize {
  std::optional<uint32_t> servers;
  std::optional<uint32_t> workers;
  friend bool operator==(const JobSize&, const JobSize&) = default;
};

// What a running job has saved. Saves are numbered by their requests, the coordinator's own ones
// included: the save of number n is over when `finished` >= n.
struct CheckpointStatus {
  Step step;                          // of the last complete one of this coordinator; 0: none yet
  uint64_t saved = 0;                 // complete ones
  uint64_t failures = 0;              // saves that were given up
  std::string failure;                // why the last of them was
  uint64_t requested = 0;             // number of the last request
  uint64_t finished = 0;              // number of the last save that is over
  uint64_t finished_well = 0;         // number of the last save with a complete checkpoint
  double seconds = 0;                 // that this one took, from the request on
  std::optional<Step> restored_step;  // the job began from a checkpoint of this step
};

// Shards whose last holder was lost, and what took its place. One for each loss.
struct StateLoss {
  std::vector<ServerId> servers;  // that held them last
  std::vector<ShardId> shards;
  uint64_t chunks = 0;
  // The last holder is waited for; where it comes back in time, nothing is lost.
  bool is_waiting = false;
  bool is_repaired = false;  // every shard has a primary again
  uint64_t returned = 0;     // shards whose holder came back with everything
  Step lowest_version;       // of the chunks when they were back
  Step highest_version;
  uint64_t from_workers = 0;     // chunks whose values are workers' copies
  uint64_t from_checkpoint = 0;  // of a checkpoint
  uint64_t begun_anew = 0;       // that had no value yet
  uint64_t outdated = 0;  // chunks whose value is of an older version: updates of theirs are lost
  bool has_optimizer_state = false;  // some of their optimizers keep any
  std::optional<Step> state_step;    // the lowest checkpoint's that it is from; none: it is zero
  double seconds = 0;                // without a primary
  friend bool operator==(const StateLoss&, const StateLoss&) = default;
};

// One line for people: what was lost, and where it comes from.
std::string ToString(const StateLoss& loss);

struct JobStatus {
  static constexpr size_t kResizesMax = 256;      // the newest are kept
  static constexpr size_t kStateLossesMax = 256;  // likewise
  static constexpr size_t kUnevenStepsMax = 256;  // likewise

  std::string job;
  JobPhase phase = JobPhase::kStarting;
  std::string failure;  // why the job failed, one line; empty otherwise
  // What `pushpull run` ends with then, where it is not 1.
  uint32_t failure_exit_code = 0;
  Term term;
  Epoch epoch;  // highest in force
  uint64_t view = 0;
  uint32_t servers_wanted = 0;  // indices 0 to servers_wanted - 1 shall be there
  uint32_t workers_wanted = 0;  // likewise
  uint64_t shards_moving = 0;   // not yet where that, and the replication, want them
  Step step;                    // steps that every member has finished
  uint64_t samples = 0;
  double seconds = 0;  // since the first view was activated
  uint64_t bytes_pushed = 0;
  uint64_t bytes_pulled = 0;
  uint64_t bytes_replicated = 0;
  uint64_t resends = 0;
  uint32_t contributors_min = 0;
  uint32_t contributors_max = 0;
  uint64_t uneven_steps = 0;              // their chunks had different contributors
  std::vector<Step> newest_uneven_steps;  // ascending
  Quantiles sync_seconds;
  std::array<Quantiles, kSyncPhaseCount> phase_seconds;
  std::vector<LossPoint>
      losses;  // mean over the workers, weighted by samples; thinned out when many
  std::map<std::string, double> results;  // mean over the workers of what their programs reported
  std::vector<ServerStatus> servers;
  std::vector<WorkerStatus> workers;
  CheckpointStatus checkpoint;
  Consistency consistency;              // the mode in force
  bool is_mode_changing = false;        // another one has been asked for
  std::string mode_problem;             // why the last change was given up; empty where it was not
  std::optional<Stall> stall;           // while a step waits for workers for too long
  std::vector<ResizeStatus> resizes;    // in the order in which they were asked for
  std::vector<StateLoss> state_losses;  // in the order in which they happened
};

}  // namespace pushpull
