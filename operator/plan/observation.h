// SPDX-License-Identifier: Apache-2.0
//
// Everything that a plan is based on: what the operator knows of one job at one moment. Plain data.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "operator/api/training_runtime.h"
#include "operator/api/wall_time.h"
#include "operator/kube/object.h"
#include "runtime/job/training_job.h"

namespace pushpull_operator {

struct ObservedPod {
  ObjectMeta meta;
  Pod pod;
};

// A coordinator's report on one worker.
struct WorkerReport {
  bool is_alive = false;
  bool has_left = false;      // normally, its share done
  bool was_released = false;  // normally, after a resize released it
  // Since its latest process registered.
  std::chrono::seconds joined_ago{0};
  bool has_stepped = false;  // its latest process has made a step
  bool is_left_out = false;  // the coordinator knows that the job goes on without it
};

// How pushes count: the part of spec.sync that a running job can change. Values that the mode does
// not use are zero.
struct SyncSettings {
  pushpull::SyncMode mode = pushpull::SyncMode::kSync;
  int staleness = 0;
  int backup_workers = 0;
  bool is_gated = false;
  friend bool operator==(const SyncSettings&, const SyncSettings&) = default;
};

// A loss of shards that no remaining server held (StateLoss of runtime/membership/job_status.h).
struct LossReport {
  bool is_repaired = false;  // every shard has a primary again
  bool is_undone = false;    // their holder came back with everything
  std::string text;          // what was lost and what took its place, one line
};

// The report of the job's coordinator (JobStatus of proto/pushpull/v1/control.proto): the parts on
// which a plan depends.
struct CoordinatorReport {
  std::string job;  // whose coordinator it is
  int64_t term = 0;
  pushpull::JobPhase phase = pushpull::JobPhase::kStarting;
  std::string failure;  // of kFailed, one line
  // As of JobStatus.
  std::optional<int> lost_server = {};
  bool can_resume = false;
  std::chrono::seconds failed_ago{0};
  int desired_servers = 0;  // indices below it are desired
  int desired_workers = 0;
  int global_batch = 0;                     // that steps should have; 0: never set
  bool divides_samples = false;             // its steps have a batch, according to its servers
  std::set<int> servers;                    // that are there
  std::map<int, WorkerReport> workers;      // that have ever registered
  std::map<int, std::string> server_racks;  // of those that are there; empty: unknown
  std::map<int, std::string> worker_racks;  // likewise
  int64_t shards_moving = 0;                // not placed yet
  int64_t epoch = 0;
  int64_t checkpoint_step = 0;  // of the last one; 0: none yet
  // As of JobStatus.
  std::optional<int64_t> began_step = {};
  int64_t step_before = 0;
  uint64_t saves_requested = 0;
  uint64_t saves_finished = 0;
  uint64_t saves_succeeded = 0;    // number of the last one that left a checkpoint
  std::string checkpoint_problem;  // why nothing can be saved at present; empty: it can
  // About a step that waits for workers longer than spec.sync.stallSeconds; empty: none does.
  std::string stall;  // the step, the workers, what they are doing and since when; one line
  std::string stall_headline;  // its beginning, which stays the same while the stall lasts
  int64_t step = 0;            // finished by every member
  bool has_stepped = false;    // since the job began or was resumed
  // Over the whole run.
  double samples_per_second = 0;
  double sync_seconds_p50 = 0;
  double sync_seconds_p99 = 0;
  std::map<std::string, double> results;  // means of what the workers' programs reported
  SyncSettings sync;                      // in force
  bool is_sync_changing = false;          // another one has been requested
  std::string sync_problem;               // why the last change was given up; empty: it was not
  // Of this coordinator's term, in the order in which they happened; none is removed from the list.
  std::vector<LossReport> losses;
};

// Why an object of the job cannot be created for now, although its spec is valid.
struct Obstacle {
  std::string reason;  // NameConflict, Forbidden, SecretMissing
  std::string message;
  friend bool operator==(const Obstacle&, const Obstacle&) = default;
};

// Settings that the coordinator refuses because of the job that it runs.
struct SyncRefusal {
  SyncSettings asked;
  std::string message;
};

struct Observation {
  ObjectMeta meta;  // of the job
  TrainingJobObject object;
  // The one that it names, as it is now; none: there is none, or it names none.
  std::optional<TrainingRuntime> runtime;
  // Pods with the job's label in its namespace, whoever owns them.
  std::vector<ObservedPod> pods;
  // By node: the value of the label that spec.workers.topologyKey names.
  std::map<std::string, std::string> racks;
  // Of the coordinator whose pod is in `pods`; none: it did not answer.
  std::optional<CoordinatorReport> coordinator;
  std::optional<SyncRefusal> sync_refusal;  // the last answer to RequestSync; none: it was accepted
  // The coordinator's number for the save requested with RequestSave; none: no request was made, or
  // the operator forgot it in a restart. It then requests another save, which does no harm.
  std::optional<uint64_t> save;
  WallTime save_time{};  // when that was
  // When the operator last wrote status.progress; none: not yet, or it was forgotten in a restart.
  std::optional<WallTime> progress_time;
  // Why the API server refused to create a pod, in its words; empty: it did not.
  std::string refusal;
  std::optional<Obstacle> obstacle;  // the latest
  // A term in the status with which no coordinator was ever created; none: no such term is known.
  std::optional<int64_t> unused_term;
  WallTime now{};  // of the API server
};

}  // namespace pushpull_operator
